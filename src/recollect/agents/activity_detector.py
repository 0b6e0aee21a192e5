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

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from recollect.agents.config import ActivityDetectorConfig
from recollect.agents.registry import REGISTRY
from recollect.agents.saved_model import SavedModel
from recollect.agents.streams import ModelStream
from recollect.agents.video_backbones import Backbone, Patches, initial_positions, load_pretrained, pool, pool_shape
from recollect.config import from_json, to_json
from recollect.cores.config import CoreConfig

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

    def stream(self, batch_size: int) -> "ActivityStream":
        """Return a stream: one frame at a time, without gradients, at constant cost."""
        return ActivityStream(self, batch_size)

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
            wanted = f"frames, uint8 [{axes}, y, x, 3]"
        else:
            fits = inputs.is_floating_point() and inputs.ndim == lead + 1 and inputs.shape[-1] == self.feature_dim
            wanted = f"features, floats [{axes}, {self.feature_dim}]"
        if not fits:
            raise ValueError(f"inputs are {inputs.dtype} {list(inputs.shape)}; this detector takes {wanted}")

    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data."""
        return {
            "agent": to_json(self.config, REGISTRY),
            "core": to_json(self.core_config, REGISTRY),
            "class_names": self.class_names,
            "frame_shape": self.frame_shape,
            "feature_dim": self.feature_dim,
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any], *, trust: bool = False) -> "ActivityDetector":
        """See :meth:`SavedModel.from_description`."""
        shape = description["frame_shape"]
        return cls(
            from_json(description["agent"], ActivityDetectorConfig, REGISTRY, trust=trust),
            from_json(description["core"], CoreConfig, REGISTRY, trust=trust),
            class_names=tuple(description["class_names"]),
            frame_shape=None if shape is None else tuple(shape),
            feature_dim=description["feature_dim"],
        )


class ActivityStream(ModelStream):
    """Stream of a detector: it owns its memory and takes one frame of every row at a time.

    Args:
        model: the detector; its present weights are used.
        batch_size: rows that advance together.
    """

    def __init__(self, model: ActivityDetector, batch_size: int) -> None:
        super().__init__(model.core, batch_size)
        self.model, self.batch_size = model, batch_size
        self._waiting: list[Tensor] = []
        self._first = torch.zeros(batch_size, dtype=torch.bool, device=self.core.like.device)

    @torch.no_grad()
    def step(self, inputs: Tensor, is_first: Tensor | bool | None = None) -> Tensor | None:
        """Return logits ``[b, k]`` of one frame, or None while a backbone's segment of several frames is not full.

        Args:
            inputs: frames ``[b, y, x, 3]``, or features ``[b, feature_dim]``.
            is_first: bool ``[b]``, or one bool for all rows; True resets that row before the frame.
        """
        self.model.check(inputs, time=False)
        if is_first is not None:
            self._first = self._first | torch.as_tensor(is_first, device=self._first.device)
        self._waiting.append(inputs)
        if len(self._waiting) < self.model.frames_per_step:
            return None
        return self._advance(self.model.tokens(torch.stack(self._waiting, 1)))

    @torch.no_grad()
    def step_unreadable(self) -> Tensor:
        """Return NaN for frames that cannot be read; they enter the memory as zeros."""
        size = (self.batch_size, self.model.num_tokens, self.model.config.width)
        return self._advance(torch.full(size, torch.nan, dtype=self.core.like.dtype, device=self.core.like.device))

    def _advance(self, tokens: Tensor) -> Tensor:
        first, self._first, self._waiting = self._first, torch.zeros_like(self._first), []
        if self.model.reads_tokens or self.model.joined:
            inputs = tokens if self.model.reads_tokens else tokens.flatten(1)
            return self.model.decode(self.core.step(inputs, first)[:, None])[:, 0]
        outputs = [self.core.step(token, None if i else first) for i, token in enumerate(tokens.unbind(1))]
        return self.model.decode(torch.stack(outputs, 1))[:, 0]

    def reset(self, rows: Any = None) -> None:
        """Reset the memory of all rows, and drop an unfinished segment of frames; or reset the rows named."""
        super().reset(rows)
        if rows is None:
            self._waiting = []

    def fork(self) -> "ActivityStream":
        """Return an independent stream with the same memory."""
        twin = super().fork()
        twin._waiting = list(self._waiting)
        return twin

    @property
    def nbytes(self) -> int:
        """Bytes held between steps: the memory, and at most a segment of frames."""
        return self.core.nbytes + sum(frame.nbytes for frame in self._waiting)
