"""Linear probe: the accuracy of a linear classifier on frozen features.

    W, v = argmin  mean cross-entropy(W z + v, label) + (DECAY / 2) |W|^2

z are the features, each less its mean and divided by its standard deviation over the training pictures (at least 1e-6).
A feature that is constant over these pictures is ignored. The score is the share of right answers; its interval is the
percentile bootstrap over pictures.

Source: linear evaluation, Chen et al. 2020, section 2.3; Ahmed et al. 2021, section 4. Differs: the problem is convex
and is solved to convergence by L-BFGS, so the probe has no learning rate and no random seed; the papers train for
hundreds of epochs with a gradient method.
"""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.config import require
from recollect.evaluation.confidence_interval import confidence_interval
from recollect.evaluation.predictions import PredictionLog
from recollect.evaluation.sequences import Evaluation
from recollect.layers.positions import patches
from recollect.runs.errors import NonFiniteError
from recollect.tasks.images.contract import ImageTask, Pictures, normalize

DECAY = 1e-3
ROUNDS = 200


def linear_probe(
    features: Callable[[Tensor], Tensor],
    task: ImageTask,
    *,
    train_rows: int,
    test_rows: int,
    batch_size: int,
    seed: int,
) -> Evaluation:
    """Train a probe on labelled pictures, and score it on others.

    Args:
        features: of normalised patches ``[b, n, 3 * p * p]`` on the CPU: ``[b, d]``.
        task: of the scored pictures; those of :meth:`ImageTask.probed_on` train the probe.
        train_rows: most training pictures; at least two, as one has no deviation.
        test_rows: most scored pictures.
        batch_size: pictures per call.
        seed: of the pictures.

    Raises:
        ValueError: too few pictures.
        NonFiniteError: a feature is NaN or infinite.
    """
    require(train_rows >= 2, "train_rows", train_rows, "give at least two pictures")
    require(test_rows >= 1, "test_rows", test_rows, "give at least one picture")

    def read(pictures: Iterator[Pictures]) -> tuple[Tensor, Tensor]:
        read = [(features(patches(normalize(one.images), task.patch)).cpu(), one.labels) for one in pictures]
        z = torch.cat([z for z, _ in read])
        bad = int((~z.isfinite()).any(1).sum())
        if bad:
            raise NonFiniteError(f"the features of {bad} of {len(z)} pictures are NaN or infinite")
        return z.double(), torch.cat([labels for _, labels in read])

    def draw(where: ImageTask, rows: int, number: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(2 * seed + number)
        return read(where.picture_batches(rows, batch_size, generator))

    train, labels = draw(task.probed_on(), train_rows, 0)
    test, answers = draw(task, test_rows, 1)
    middle, spread = train.mean(0), train.std(0).clamp(min=1e-6)
    spread[train.amin(0) == train.amax(0)] = torch.inf  # a rounding error of the mean is no deviation
    logits = fit_linear((train - middle) / spread, labels, task.num_classes)((test - middle) / spread)
    right = (logits.argmax(1) == answers).numpy().astype(int)
    asked = [1] * len(right)
    low, high = confidence_interval(right, torch.ones(len(right)).numpy())
    share = float(right.mean())
    log = PredictionLog()
    log.add(logits[:, None], answers[:, None], torch.ones(len(answers), 1, dtype=torch.bool))
    return Evaluation(
        score=share,
        low=low,
        high=high,
        perfect=share,
        loss=float(F.cross_entropy(logits, answers)),
        chance=task.spec.chance,
        correct=right.tolist(),
        asked=asked,
        predictions=log.finish(*task.name_rows(len(answers)), task.model_names()),
    )


@torch.enable_grad()
def fit_linear(inputs: Tensor, labels: Tensor, num_classes: int) -> Callable[[Tensor], Tensor]:
    """Fit the linear map ``[n, d] -> [n, num_classes]`` with the least loss to inputs of similar scale."""
    weights = torch.zeros(num_classes, inputs.shape[1] + 1, dtype=inputs.dtype, requires_grad=True)
    solver = torch.optim.LBFGS([weights], max_iter=ROUNDS, line_search_fn="strong_wolfe", tolerance_change=1e-9)

    def logits(z: Tensor) -> Tensor:
        return z @ weights[:, :-1].T + weights[:, -1]

    def closure() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(logits(inputs), labels) + DECAY / 2 * weights[:, :-1].square().sum()
        loss.backward()
        return loss

    solver.step(closure)
    weights.requires_grad_(False)
    return logits
