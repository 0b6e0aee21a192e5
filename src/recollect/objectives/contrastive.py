"""NT-Xent: contrastive loss that pulls together two views of one picture and pushes apart those of others.

    loss = mean over all 2 b views i of  -log( exp(cos(z_i, z_i') / T) / sum over k != i of exp(cos(z_i, z_k) / T) )

with i' the other view of the same picture.

Source: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations (2020), equation 1.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def nt_xent(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Return the loss of two views ``[b, d]`` each, a scalar in float32 or better."""
    views = F.normalize(torch.cat((one, other)).to(torch.promote_types(one.dtype, torch.float32)), dim=-1)
    similarity = views @ views.T / temperature
    similarity = similarity.masked_fill(torch.eye(len(views), dtype=torch.bool, device=views.device), -torch.inf)
    partner = torch.arange(len(views), device=views.device).roll(len(one))
    return F.cross_entropy(similarity, partner)
