"""Does attention find the foreground? Numbers for the examples in figures 2 and 7 of the bottleneck's paper.

    overlap     IoU of the patches with the largest weights (20, 30, 40, 50 % of them) and the foreground's pixels
    pointing    the patch with the largest weight has its middle on the foreground, or ``NEAR`` pixels from it

Every number has two controls: ``chance`` is the score of as many randomly drawn patches (of the overlap: with the
common area of the mean draw, which is a little less than the mean overlap), and ``static`` the score of one map for all
pictures, the mean of the model's own. The attention is the encoder's ``summary_attention``, from which its answer is
read. Where an encoder reads a picture in chunks, each with a softmax of its own, ``across_chunks`` compares the patches
of all chunks by one softmax.

Source: Didolkar et al. 2022, section 3.1 and figures 2 and 7, which show examples where these are numbers; Zhang et
al., Top-down neural attention by excitation backprop (2016), for the pointing game.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.agents.sequence_classifier import SequenceClassifier
from recollect.config import require
from recollect.evaluation.confidence_interval import confidence_interval
from recollect.evaluation.score import Score
from recollect.evaluation.sequences import eval_mode
from recollect.interpret.pointing import NEAR
from recollect.layers.positions import patches
from recollect.tasks.images.contract import ImageTask, normalize

SHARES = (0.2, 0.3, 0.4, 0.5)  # of the patches, as in figure 7
BATCH_SIZE = 64


@dataclass(frozen=True, kw_only=True)
class ForegroundScore(Score):
    """How well attention finds the foreground."""

    static: float  # score of one map for all pictures: the mean of the model's own
    rows: list[float]  # score of each picture

    def metrics(self) -> dict[str, float]:
        """Return score, interval and both controls."""
        return {name: getattr(self, name) for name in ("score", "low", "high", "chance", "static")}

    def to_json(self) -> dict[str, Any]:
        """Return the metrics and the number of pictures as JSON data."""
        return {**self.metrics(), "rows": len(self.rows)}

    def by_row(self) -> tuple[list[float], list[int]]:
        """Return the score of each picture, and how many pictures it stands for."""
        return self.rows, [1] * len(self.rows)

    def describe(self) -> str:
        """Return one line for a person."""
        return f"{self.score:.4f} ({self.interval()}chance {self.chance:.4f}, one map for all {self.static:.4f})"


@dataclass(frozen=True)
class ForegroundOverlap:
    """Measure of a model: IoU of the most attended patches and the foreground."""

    share: float  # of the patches
    across_chunks: bool = False
    """Compare all patches by one softmax of the scores."""

    def __call__(self, agent: SequenceClassifier, where: ImageTask, *, samples: int, seed: int) -> ForegroundScore:
        """Return the overlap of attention and foreground, by :func:`evaluate_attention`."""
        require(0 < self.share <= 1, "share", self.share, "give a share above 0 and up to 1")
        measure = partial(overlap, share=self.share)
        return evaluate_attention(agent, where, measure, samples=samples, seed=seed, across_chunks=self.across_chunks)


@dataclass(frozen=True)
class ForegroundPointing:
    """Measure of a model: is the most attended patch on the foreground?"""

    def __call__(self, agent: SequenceClassifier, where: ImageTask, *, samples: int, seed: int) -> ForegroundScore:
        """Return how often attention points at the foreground, by :func:`evaluate_attention`."""
        return evaluate_attention(agent, where, pointing, samples=samples, seed=seed)


class PatchScores(NamedTuple):
    """Scores of b pictures."""

    scores: Tensor  # ``[b]``
    chance: Tensor  # ``[b]``: of as many randomly drawn patches


def evaluate_attention(
    agent: SequenceClassifier,
    where: ImageTask,
    measure: Callable[[Tensor, Tensor], PatchScores],
    *,
    samples: int,
    seed: int,
    across_chunks: bool = False,
) -> ForegroundScore:
    """Measure the attention of a model on fresh pictures.

    Args:
        agent: its encoder has a ``summary_attention``.
        where: pictures whose foreground is known.
        measure: of maps ``[b, n]`` and foregrounds ``[b, y, x]``.
        samples: pictures.
        seed: of the pictures.
        across_chunks: compare the patches of all chunks by one softmax.

    Raises:
        ValueError: the foreground of these pictures is not known, or there are none.
    """
    maps, foreground = attention_to_patches(agent, where, samples=samples, seed=seed, across_chunks=across_chunks)
    scores, chance = measure(maps, foreground)
    static = measure(maps.mean(0).expand_as(maps), foreground).scores
    rows = scores.double().numpy()
    low, high = confidence_interval(rows, np.ones(len(rows)))
    means = {"score": float(rows.mean()), "chance": float(chance.mean()), "static": float(static.mean())}
    return ForegroundScore(**means, low=low, high=high, rows=rows.tolist())


@torch.no_grad()
def attention_to_patches(
    agent: SequenceClassifier, where: ImageTask, *, samples: int, seed: int, across_chunks: bool = False
) -> tuple[Tensor, Tensor]:
    """Return attention ``[b, n]`` to the patches of pictures, and their foregrounds ``[b, y, x]``, on the CPU."""
    require(samples >= 1, "samples", samples, "give at least one picture")
    generator, maps, foregrounds = torch.Generator().manual_seed(seed), [], []
    device = next(agent.parameters()).device
    with eval_mode(agent):
        for pictures in where.picture_batches(samples, BATCH_SIZE, generator):
            if pictures.foreground is None:
                raise ValueError(f"{type(where).__name__}: the foreground of these pictures is unknown: take Shapes")
            inputs = patches(normalize(pictures.images), where.patch)
            found = agent.summary_attention(inputs.to(device), across_chunks=across_chunks)
            maps.append(found.float().cpu())
            foregrounds.append(pictures.foreground)
    return torch.cat(maps), torch.cat(foregrounds)


def overlap(maps: Tensor, foreground: Tensor, share: float) -> PatchScores:
    """Return the IoU of the patches with the largest weights and the foreground.

    Args:
        maps: weights ``[b, n]`` of the patches of a square grid.
        foreground: bool ``[b, y, x]``.
        share: of the patches that are taken, at least one.
    """
    count = max(1, round(share * maps.shape[1]))
    order = maps.argsort(dim=1, descending=True, stable=True)
    chosen = torch.zeros_like(maps, dtype=torch.bool).scatter(1, order[:, :count], True)
    side = round(maps.shape[1] ** 0.5)
    inside = F.avg_pool2d(foreground[:, None].float(), foreground.shape[1] // side).flatten(1)  # share of each patch
    common, total = (inside * chosen).sum(1), inside.sum(1)
    by_chance = total * count / maps.shape[1]
    return PatchScores(common / (count + total - common), by_chance / (count + total - by_chance))


def pointing(maps: Tensor, foreground: Tensor) -> PatchScores:
    """Return whether the middle of the patch with the largest weight is on the foreground, or near it.

    Args:
        maps: weights ``[b, n]`` of the patches of a square grid.
        foreground: bool ``[b, y, x]``.
    """
    near = F.max_pool2d(foreground[:, None].float(), 2 * NEAR + 1, stride=1, padding=NEAR)[:, 0]
    side, size = round(maps.shape[1] ** 0.5), foreground.shape[1]
    middles = ((torch.arange(side) + 0.5) * size / side).long().clamp(max=size - 1)
    hits = near[:, middles][:, :, middles].flatten(1)  # b n
    return PatchScores(hits.gather(1, maps.argmax(1, keepdim=True))[:, 0], hits.mean(1))
