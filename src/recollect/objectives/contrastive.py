"""NT-Xent: contrastive loss that pulls together two views of one picture and pushes apart those of others.

    loss = mean over all 2 b views i of  -log( exp(cos(z_i, z_i') / T) / sum over k != i of exp(cos(z_i, z_k) / T) )

with i' the other view of the same picture.

Source: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations (2020), equation 1.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def nt_xent(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Return the loss of two views of b pictures, a scalar in float32 or better, under autocast too.

    Args:
        one: float ``[b, d]``, a vector of each picture.
        other: float ``[b, d]``, vectors of the other views, in the same order.
        temperature: T, which cosines are divided by.

    Raises:
        ValueError: the shapes do not agree, or the temperature is not positive.
    """
    if one.ndim != 2 or one.shape != other.shape:
        raise ValueError(f"views {list(one.shape)} and {list(other.shape)} do not agree: give [b, d] twice")
    if not temperature > 0:
        raise ValueError(f"temperature={temperature!r}: give a positive number, for example 0.5")
    views = F.normalize(torch.cat((one, other)).to(torch.promote_types(one.dtype, torch.float32)), dim=-1)
    with torch.autocast(views.device.type, enabled=False):  # which would multiply in bfloat16
        similarity = views @ views.T / temperature
    similarity = similarity.masked_fill(torch.eye(len(views), dtype=torch.bool, device=views.device), -torch.inf)
    partner = torch.arange(len(views), device=views.device).roll(len(one))
    return F.cross_entropy(similarity, partner)
