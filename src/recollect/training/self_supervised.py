"""Learning from pictures without labels (SiT): restore, say how it was turned, know the other view again.

Every picture gives two views, each turned by its own number of quarters, cut out and recoloured, then damaged:

    rotation      cross-entropy of the quarters                                            (both views)
    contrast      NT-Xent between the two views, temperature 0.5
    restoring     mean absolute difference of the restored patches and the undamaged view   (both views)

    loss = sum over the three of  a_i exp(-s_i) L_i + s_i / 2,      a = 1, 1, 1/2,  s learned, from 1 on

A score is that of a linear probe on the frozen features (:mod:`recollect.evaluation.probe`).

Paper:    Ahmed et al., SiT: Self-supervised Vision Transformer (2021), section 3 and its code (commit 1767b91);
          Didolkar et al. 2022, sections 3.1 and 7.2, with a bottleneck in it.
Differs:  views and damages as tasks/images/views.py says. Views are mirrored after they are turned, as in that code: a
          mirrored quarter to the left looks like a quarter to the right of what is as common the other way round, so
          rotation cannot be learned to its end. Photographs with ``augment`` are moved, with black where nothing is,
          and mirrored before that, once for both views; the recipe leaves it away.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.agents.sit import SiT, SiTConfig
from recollect.config import require
from recollect.encoders.contract import EncoderConfig
from recollect.evaluation.probe import linear_probe
from recollect.evaluation.sequences import Evaluation
from recollect.layers.positions import patches
from recollect.objectives.contrastive import nt_xent
from recollect.tasks.images.contract import ImageTask, normalize
from recollect.tasks.images.views import corrupt, random_view, rotate
from recollect.training.optimizers import begin_step, drawing_again, take_step
from recollect.training.streams import StreamConfig, StreamTrainer

WEIGHTS = (1.0, 1.0, 0.5)  # a: rotation, contrast, restoring
TEMPERATURE = 0.5


@dataclass(frozen=True, kw_only=True)
class SelfSupervisedConfig(StreamConfig):
    """Train an encoder on pictures without labels; a linear probe scores it."""

    task: ImageTask
    """The pictures."""
    encoder: EncoderConfig
    """What reads the patches."""
    agent: SiTConfig = field(default_factory=SiTConfig)
    """What surrounds it."""
    probe_rows: int = 2000
    """Pictures with labels that a probe is trained on, at most the training part."""
    evaluation_rows: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.probe_rows >= 2, "probe_rows", self.probe_rows, "give at least two pictures")
        require(self.batch_size >= 2, "batch_size", self.batch_size, "two pictures can be told apart: give at least 2")

    @property
    def title(self) -> str:
        """Pictures and encoder."""
        return (
            f"{type(self.task).__name__.lower()} without labels · {type(self.encoder).__name__.removesuffix('Config')}"
        )

    def build_agent(self) -> SiT:
        """The model alone, with new weights, on the CPU."""
        return self.agent.build(self.encoder, self.task.spec)

    def build(self) -> "SelfSupervisedTrainer":
        """The trainer."""
        return SelfSupervisedTrainer(self)

    def evaluate(
        self,
        model: SiT,
        task: ImageTask | None = None,
        *,
        samples: int,
        seed: int,
        batch_size: int | None = None,
        greedy: bool | None = None,
    ) -> Evaluation:
        """Score a linear probe of a model on ``samples`` pictures. See :meth:`TrainerConfig.evaluate`."""
        require(samples >= 1, "samples", samples, "score one picture at least")
        device, was_training = next(model.parameters()).device, model.training

        @torch.no_grad()
        def features(inputs: Tensor) -> Tensor:
            with torch.autocast(device.type, torch.bfloat16, enabled=self.bfloat16):
                return model.features(inputs.to(device)).float()

        model.eval()
        try:
            return linear_probe(
                features,
                self.task.scored_on(final=True) if task is None else task,
                train_rows=self.probe_rows,
                test_rows=samples,
                batch_size=self.batch_size if batch_size is None else batch_size,
                seed=seed,
            )
        finally:
            model.train(was_training)


class SelfSupervisedTrainer(StreamTrainer[SelfSupervisedConfig, SiT]):
    """One optimiser step per batch of pictures, two views of each.

    Args:
        config: of the run.
    """

    step_metrics = ("loss", "rotation", "contrast", "restoring", "accuracy", "gradient_norm", "learning_rate")

    def __init__(self, config: SelfSupervisedConfig) -> None:
        super().__init__(config, config.build_agent())

    def step(self) -> dict[str, float]:
        """Train on the next pictures. ``accuracy`` is that of the quarters."""
        config = self.config
        rate = config.optimizer.rate(self.updates, config.fit.steps)
        with drawing_again(self.generator):
            inputs, targets, quarters = (part.to(self.device) for part in self._views())
            self.model.train()
            begin_step(self.optimizer, rate)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.bfloat16):
                rotation, contrast, restored = self.model(inputs)
            one, other = contrast.chunk(2)
            parts = {
                "rotation": F.cross_entropy(rotation.float(), quarters),
                "contrast": nt_xent(one, other, TEMPERATURE),
                "restoring": (restored.float() - targets).abs().mean(),
            }
            loss = weighed(torch.stack(list(parts.values())), self.model.log_variances)
            others = parts | {"accuracy": (rotation.detach().argmax(1) == quarters).float().mean()}
            numbers = take_step(
                self.model, self.optimizer, config.optimizer, loss, finite={"loss": loss}, others=others
            )
        self.updates += 1
        return numbers | {"learning_rate": rate}

    def _views(self) -> tuple[Tensor, Tensor, Tensor]:
        """Damaged and undamaged patches of both views, ``[2 b, n, 3 * p * p]``, and their quarters, long ``[2 b]``."""
        task, generator = self.config.task, self.generator
        images = task.pictures(self.config.batch_size, generator).images
        both = torch.cat((images, images))
        quarters = torch.randint(4, (len(both),), generator=generator)
        clean = random_view(rotate(both, quarters), generator)
        inputs, targets = (patches(normalize(x), task.patch) for x in (corrupt(clean, generator), clean))
        return inputs, targets, quarters


def weighed(losses: Tensor, log_variances: Tensor) -> Tensor:
    """``sum a exp(-s) L + s / 2`` of the losses of rotation, contrast and restoring, ``[3]`` each."""
    return (losses.new_tensor(WEIGHTS) * (-log_variances).exp() * losses + log_variances / 2).sum()
