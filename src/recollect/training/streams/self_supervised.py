"""Self-supervised training on pictures (SiT): restore patches, name the rotation, recognise the other view.

Every picture gives two views, each turned by its own number of quarters, cut out and recoloured, then damaged (a task
may draw another picture of the same object for the second view):

    rotation      cross-entropy of the quarters                                            (both views)
    contrast      NT-Xent between the two views, temperature 0.5
    restoring     mean absolute difference of the restored patches and the undamaged view   (both views)

    loss = sum over the three of  a_i exp(-s_i) L_i + s_i / 2,      a = 1, 1, 1/2,  s learned, from 1 on

The score is that of a linear probe on the frozen features (:mod:`recollect.evaluation.probe`).

Paper:    Ahmed et al., SiT: Self-supervised Vision Transformer (2021), section 3 and its code (commit 1767b91);
          Didolkar et al. 2022, sections 3.1 and 7.2, with a bottleneck in it.
Differs:  views and damage as in tasks/images/views.py. Views are mirrored after they are turned, as in that code: a
          mirrored quarter turn to the left looks like a quarter turn to the right, so rotation cannot be learned
          completely. With ``augment``, photographs are shifted (black fills the border) and mirrored before that, the
          same for both views; the recipe does not use it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.agents.sit import SiT
from recollect.layers.positions import patches
from recollect.objectives.contrastive import nt_xent
from recollect.tasks.images.contract import normalize
from recollect.tasks.images.views import corrupt, random_view, rotate
from recollect.training.streams.config import SelfSupervisedConfig
from recollect.training.streams.trainer import StreamTrainer

WEIGHTS = (1.0, 1.0, 0.5)  # a: rotation, contrast, restoring
TEMPERATURE = 0.5


class SelfSupervisedTrainer(StreamTrainer[SelfSupervisedConfig, SiT]):
    """One optimiser step per batch of pictures, two views of each."""

    step_metrics = ("loss", "rotation", "contrast", "restoring", "accuracy", "gradient_norm", "learning_rate")

    def __init__(self, config: SelfSupervisedConfig) -> None:
        super().__init__(config, config.build_agent())

    def compute_loss(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Draw the next pictures; return the loss, its parts, and the accuracy of the quarters."""
        inputs, targets, quarters = (part.to(self.device) for part in self._draw_views())
        with self.autocast():
            rotation, contrast, restored = self.model(inputs)
        one, other = contrast.chunk(2)
        parts = {
            "rotation": F.cross_entropy(rotation.float(), quarters),
            "contrast": nt_xent(one, other, TEMPERATURE),
            "restoring": (restored.float() - targets).abs().mean(),
        }
        loss = weigh(torch.stack(list(parts.values())), self.model.log_variances)
        return loss, parts | {"accuracy": (rotation.detach().argmax(1) == quarters).float().mean()}

    def _draw_views(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return damaged and undamaged patches of both views, ``[2 b, n, 3 * p * p]``, and their quarters ``[2 b]``."""
        task, generator = self.config.task, self.generator
        both = torch.cat(task.picture_pairs(self.config.batch_size, generator))
        quarters = torch.randint(4, (len(both),), generator=generator)
        clean = random_view(rotate(both, quarters), generator)
        inputs, targets = (patches(normalize(x), task.patch) for x in (corrupt(clean, generator), clean))
        return inputs, targets, quarters


def weigh(losses: Tensor, log_variances: Tensor) -> Tensor:
    """Weigh the losses of rotation, contrast and restoring, ``[3]``, by learned uncertainties: ``sum a exp(-s) L + s /
    2``.
    """
    return (losses.new_tensor(WEIGHTS) * (-log_variances).exp() * losses + log_variances / 2).sum()
