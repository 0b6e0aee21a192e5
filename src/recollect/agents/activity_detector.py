"""Temporal activity detection: frames in, activities of every frame out, from the frames so far.

    v_t = backbone(frame_t)                      tokens of the frame                [b, t, p, dim]
    u_t = v_t averaged to the n tokens that the core reads, W_u, + positions        [b, t, n, width]
    y_t, state = core(u_t, state, is_first)                                         [b, t, r, d]
    logits_t = W_o LN(mean_r y_t)                one sigmoid per activity            [b, t, k]

A core that reads vectors gets the tokens of a frame side by side, or one after the other (``vector_tokens="steps"``):
then a frame is n steps of the core, the first of which resets it, and y_t has their outputs. A backbone that reads
several frames at once (ViViT) makes one step of them; its answer comes with the last one and is that of all.
Precomputed features become the n tokens by one matrix.

Source: Ryoo et al. 2023 (Token Turing Machines), sections 2 and 3.1; equation 9 leaves the mean over r open.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self, overload

import numpy as np
import torch
from torch import Tensor, nn

from recollect.agents.config import ActivityDetectorConfig
from recollect.agents.registry import REGISTRY
from recollect.agents.saved_model import SavedModel
from recollect.agents.streams import ModelStream
from recollect.agents.video_backbones import (
    Backbone,
    Patches,
    build_pretrained,
    initial_positions,
    load_pretrained,
    pool,
    pool_shape,
)
from recollect.config import from_json, to_json
from recollect.cores.arrays import First, Numbers, to_array, to_first, to_tensor
from recollect.cores.config import CoreConfig
from recollect.cores.input_checks import require_float_dtype, require_is_first
from recollect.cores.stream_memory import RowNames
from recollect.layers.rings import Rows
from recollect.ops.reduced_linear import FULL, CacheFormat, Precision, WeightFormat

INITIAL_LOGIT = -2.0  # initial bias of all logits: at most frames most activities are absent


class ActivityDetector(SavedModel):
    """Frames or features -> tokens -> core -> activities. Made by :meth:`ActivityDetectorConfig.build`."""

    def __init__(
        self,
        config: ActivityDetectorConfig,
        core: CoreConfig,
        *,
        class_names: tuple[str, ...],
        frame_shape: tuple[int, int, int] | None,
        feature_dim: int | None,
        pretrained: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if (frame_shape is None) == (feature_dim is None):
            raise ValueError(f"frame_shape={frame_shape!r}, feature_dim={feature_dim!r}: give exactly one of the two")
        self.config, self.core_config, self.class_names = config, core, class_names
        self.frame_shape, self.feature_dim = frame_shape, feature_dim
        self.backbone: Backbone | None = None
        if frame_shape is not None:
            self.backbone = (
                Patches(config.size, config.patch, config.width)
                if config.backbone == "patches"
                else load_pretrained(config.backbone, config.model, config.frozen)
                if pretrained is None
                else build_pretrained(config.backbone, pretrained, config.frozen)
            )
        self.core = core.build(config.width)
        self.reads_tokens = len(self.core.input_shape) == 2
        self.joined = not self.reads_tokens and config.vector_tokens == "joined"
        self.num_tokens = self.core.input_shape[0] if self.reads_tokens else config.num_tokens
        if self.joined:
            self.core = core.build(self.num_tokens * config.width)
        self.project: nn.Module = nn.Identity()
        self.places: nn.Parameter | None = None
        if self.backbone is not None:
            grid = pool_shape(self.backbone.grid, self.num_tokens)
            if self.backbone.dim != config.width:
                self.project = nn.Linear(self.backbone.dim, config.width)
            self.places = nn.Parameter(initial_positions(grid, config.width))
        else:
            assert feature_dim is not None
            self.project = nn.Sequential(
                nn.LayerNorm(feature_dim), nn.Linear(feature_dim, self.num_tokens * config.width)
            )
        out = self.core.output_shape[-1]
        self.norm = nn.LayerNorm(out)
        self.readout = nn.Linear(out, len(class_names))
        nn.init.constant_(self.readout.bias, INITIAL_LOGIT)

    @property
    def frames_per_step(self) -> int:
        """Number of frames in one step of the core."""
        return 1 if self.backbone is None else self.backbone.frames_per_step

    def train(self, mode: bool = True) -> "ActivityDetector":
        """Switch to training mode, but for a frozen backbone."""
        super().train(mode)
        if self.backbone is not None and self.config.backbone != "patches" and self.config.frozen:
            self.backbone.eval()
        return self

    def initial_state(self, batch_size: int) -> Any:
        """Return the initial state of ``batch_size`` rows."""
        return self.core.initial_state(batch_size)

    def forward(self, inputs: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any]:
        """Return logits of the activities at every frame, ``[b, t, k]``, and the new state.

        Args:
            inputs: frames, uint8 ``[b, t, y, x, 3]``, or features, float ``[b, t, feature_dim]``.
            state: from :meth:`initial_state` or an earlier call.
            is_first: bool ``[b, t]``; True resets the row's memory before that frame.

        Raises:
            ValueError: inputs of the wrong shape or dtype, or frames that do not fill the backbone's segments.
        """
        self.check(inputs, time=True)
        require_is_first(is_first, tuple(inputs.shape[:2]))
        batch, steps, f = *inputs.shape[:2], self.frames_per_step
        if steps % f:
            raise ValueError(f"inputs have {steps} frames: this backbone reads {f} at once, give a multiple")
        tokens = self.tokens(inputs.unflatten(1, (steps // f, f)).flatten(0, 1)).unflatten(0, (batch, steps // f))
        outputs, state = self.core(*self.core_inputs(tokens, state, is_first.unflatten(1, (-1, f)).any(-1)))
        return self.decode(outputs).repeat_interleave(f, 1), state

    def tokens(self, steps: Tensor) -> Tensor:
        """Map frames ``[n, frames_per_step, y, x, 3]`` or features ``[n, 1, feature_dim]`` to ``[n, tokens, d]``."""
        if self.backbone is None:
            return self.project(steps[:, 0]).unflatten(-1, (self.num_tokens, -1))
        assert self.places is not None
        return self.project(pool(self.backbone(steps), self.backbone.grid, self.num_tokens)) + self.places

    def core_inputs(self, tokens: Tensor, state: Any, is_first: Tensor) -> tuple[Tensor, Any, Tensor]:
        """Return the arguments of the core for tokens ``[b, t, n, width]``."""
        if self.reads_tokens:
            return tokens, state, is_first
        if self.joined:
            return tokens.flatten(2), state, is_first
        first = torch.zeros(tokens.shape[:3], dtype=torch.bool, device=tokens.device)
        first[:, :, 0] = is_first
        return tokens.flatten(1, 2), state, first.flatten(1)

    def decode(self, outputs: Tensor) -> Tensor:
        """Map the core's outputs to logits ``[b, t, k]``."""
        if self.reads_tokens:
            outputs = outputs.mean(-2)
        elif not self.joined:
            outputs = outputs.unflatten(1, (-1, self.num_tokens)).mean(2)
        return self.readout(self.norm(outputs))

    def stream(
        self, batch_size: int, *, weights: WeightFormat = "float32", cache: CacheFormat = "float32"
    ) -> "ActivityStream":
        """Return a stream: one frame at a time, without gradients, at constant cost."""
        return ActivityStream(self, batch_size, Precision(weights=weights, cache=cache))

    def flops_per_step(self) -> int:
        """Return the FLOPs of core and readout for one step, without the backbone."""
        steps = 1 if self.reads_tokens or self.joined else self.num_tokens
        return steps * self.core.flops_per_step() + 2 * self.readout.weight.numel()

    def check(self, inputs: Tensor, *, time: bool) -> None:
        """Raise ``ValueError`` unless the inputs fit this detector, with or without a time axis."""
        lead = 2 if time else 1
        axes = ", ".join(["b", "t"][:lead])
        if self.backbone is not None:
            fits = inputs.dtype == torch.uint8 and inputs.ndim == lead + 3 and inputs.shape[-1] == 3
            fits = fits and 0 not in inputs.shape[lead:]
            wanted = f"frames, uint8 [{axes}, y, x, 3]"
        else:
            fits = inputs.is_floating_point() and inputs.ndim == lead + 1 and inputs.shape[-1] == self.feature_dim
            wanted = f"features, floats [{axes}, {self.feature_dim}]"
        if not fits:
            raise ValueError(f"inputs are {inputs.dtype} {list(inputs.shape)}; this detector takes {wanted}")
        if self.backbone is None:
            require_float_dtype(inputs, self.norm.weight.dtype)

    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data."""
        return {
            "agent": to_json(self.config, REGISTRY),
            "core": to_json(self.core_config, REGISTRY),
            "class_names": self.class_names,
            "frame_shape": self.frame_shape,
            "feature_dim": self.feature_dim,
            "pretrained": None if self.backbone is None else self.backbone.describe(),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any], *, trust: bool = False) -> "ActivityDetector":
        """Make a model, without weights, from the description in its folder."""
        shape = description["frame_shape"]
        return cls(
            from_json(description["agent"], ActivityDetectorConfig, REGISTRY, trust=trust),
            from_json(description["core"], CoreConfig, REGISTRY, trust=trust),
            class_names=tuple(description["class_names"]),
            frame_shape=None if shape is None else tuple(shape),
            feature_dim=description["feature_dim"],
            pretrained=description.get("pretrained"),  # older folders name its folder alone
        )


class ActivityStream(ModelStream):
    """Stream of a detector: it owns its memory and takes one frame of every row, or of some rows, at a time.

    Frames of a segment that is not full yet are no part of the memory that is saved, loaded or copied to other rows.

    Args:
        model: the detector; its present weights are used.
        batch_size: number of rows.
    """

    model: ActivityDetector

    def __init__(self, model: ActivityDetector, batch_size: int, precision: Precision = FULL) -> None:
        super().__init__(model, batch_size, precision)
        self._waiting: list[list[Tensor]] = [[] for _ in range(batch_size)]  # frames of each row's segment
        self._first = [False] * batch_size  # whether an episode begins within it

    @overload
    def step(self, inputs: Tensor, is_first: First = None) -> Tensor | None: ...

    @overload
    def step(self, inputs: Numbers, is_first: First = None) -> np.ndarray | None: ...

    def step(self, inputs: Tensor | Numbers, is_first: First = None) -> Tensor | np.ndarray | None:
        """Return logits ``[b, k]`` of one frame, or None while a backbone's segment of several frames is not full.

        Args:
            inputs: frames ``[b, y, x, 3]``, or features ``[b, feature_dim]``: a tensor, a NumPy array or a list.
            is_first: bool ``[b]``, or one bool for all rows; True resets that row before the frame, or before its whole
                segment where the backbone reads several frames at once. None: no reset.

        Raises:
            ValueError: inputs of the wrong shape or dtype; rows in the middle of a segment, and others that are not.
        """
        return self._step(inputs, is_first, None)

    @overload
    def step_rows(self, inputs: Tensor, rows: RowNames, is_first: First = None) -> Tensor | None: ...

    @overload
    def step_rows(self, inputs: Numbers, rows: RowNames, is_first: First = None) -> np.ndarray | None: ...

    def step_rows(self, inputs: Tensor | Numbers, rows: RowNames, is_first: First = None) -> Tensor | np.ndarray | None:
        """Return logits ``[r, k]`` of one frame of some rows, or None; the others do not move.

        Args:
            inputs: of these rows, in the order of ``rows``, as :meth:`step` takes them.
            rows: r integers, each once, or a boolean mask of all rows.
            is_first: bool ``[r]``, or one bool for all of them.

        Raises:
            ValueError: no such row, or one that is named twice; some rows are in the middle of a segment, and others
                are not.
        """
        return self._step(inputs, is_first, self.named_rows(rows))

    @torch.no_grad()
    def _step(self, inputs: Tensor | Numbers, is_first: First, rows: Rows | None) -> Any:
        if not isinstance(inputs, Tensor):
            found = self._step(to_tensor(inputs, self.like), is_first, rows)
            return None if found is None else to_array(found)
        self.model.check(inputs, time=False)
        numbers = range(self.batch_size) if rows is None else rows.numbers
        if len(inputs) != len(numbers):
            raise ValueError(f"inputs have {len(inputs)} rows, not {len(numbers)}: give one frame for each")
        waiting = {len(self._waiting[row]) for row in numbers}
        if len(waiting) > 1:
            raise ValueError(f"rows={list(numbers)} are at different frames of their segments: step them in two calls")
        sizes = {tuple(frame.shape) for row in numbers for frame in self._waiting[row][:1]} - {tuple(inputs.shape[1:])}
        if sizes:
            raise ValueError(
                f"inputs are {list(inputs.shape)}: the segment began with {list(sizes.pop())}, give one size"
            )
        given = to_first(is_first, len(numbers), self.like.device)
        require_is_first(given, (len(numbers),))
        first = [self._first[row] or begins for row, begins in zip(numbers, given.tolist(), strict=True)]
        if not numbers or waiting.pop() + 1 < self.model.frames_per_step:
            # Copies, because a camera may write its next frame into the same buffer.
            for row, frame, begins in zip(numbers, inputs.clone(), first, strict=True):
                self._waiting[row].append(frame)
                self._first[row] = begins
            return None
        frames = [torch.stack([*self._waiting[row], frame]) for row, frame in zip(numbers, inputs, strict=True)]
        return self._advance(self.model.tokens(torch.stack(frames)), rows, first)

    @torch.no_grad()
    def step_unreadable(self) -> Tensor:
        """Return NaN ``[b, k]`` for a frame of every row that cannot be read; zeros enter the memory in its place.

        A segment of several frames that is not full is dropped.
        """
        size = (self.batch_size, self.model.num_tokens, self.model.config.width)
        tokens = torch.full(size, torch.nan, dtype=self.like.dtype, device=self.like.device)
        return self._advance(tokens, None, self._first)

    def _advance(self, tokens: Tensor, rows: Rows | None, is_first: list[bool]) -> Tensor:
        """Take a step of the core; after an error the unfinished segments are unchanged."""
        first = torch.tensor(is_first, device=self.like.device)
        if self.model.reads_tokens or self.model.joined:
            inputs = tokens if self.model.reads_tokens else tokens.flatten(1)
            outputs = self.step_core(inputs, rows, first)[:, None]
        else:
            parts = [self.step_core(token, rows, None if i else first) for i, token in enumerate(tokens.unbind(1))]
            outputs = torch.stack(parts, 1)
        self._drop_frames(range(self.batch_size) if rows is None else rows.numbers)
        return self.model.decode(outputs)[:, 0]

    def _drop_frames(self, rows: Iterable[int]) -> None:
        for row in rows:
            self._waiting[row], self._first[row] = [], False

    def write_rows(self, state: Any, rows: Rows | None) -> None:
        """Continue some rows from a checked state ``[r, ...]`` and a new segment of frames; None: all."""
        super().write_rows(state, rows)
        self._drop_frames(range(self.batch_size) if rows is None else rows.numbers)

    def swap_weights(self, model: Any = None) -> None:
        """Continue all rows, also in unfinished segments of frames, under other weights: as :class:`ModelStream`."""
        waiting, first = self._waiting, self._first
        super().swap_weights(model)
        self._waiting, self._first = waiting, first

    def remade(self, batch_size: int) -> Self:
        """Return a new stream of the same model with so many rows.

        Raises:
            ValueError: rows are added or removed while a segment of frames is not full.
        """
        if batch_size != self.batch_size and any(self._waiting):
            raise ValueError(f"batch_size={batch_size}: add and remove rows when no segment of frames is unfinished")
        return super().remade(batch_size)

    def fork(self) -> Self:
        """Return an independent stream with the same memory and the same unfinished segments."""
        twin = super().fork()
        twin._waiting, twin._first = [list(frames) for frames in self._waiting], list(self._first)
        return twin

    @property
    def nbytes(self) -> int:
        """Bytes held between steps: the memory, and at most a segment of frames."""
        return self.core.nbytes + sum(frame.nbytes for frames in self._waiting for frame in frames)
