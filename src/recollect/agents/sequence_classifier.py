"""Classifier of whole rows: tokens or float vectors in, an encoder of all steps, one answer out.

    e_t = embedding[token_t]  (or W_in x_t)  + P_t               P: positions of the whole row
    y, s = encoder(e, padding)
    row = the encoder's own summary s, or the mean of y over the steps that are not padding
    logits = W_2 relu(W_1 row)

For images as rows of patches (``positions="grid"``) P is a table of the square grid of patches, which is interpolated
for an image of another resolution. An encoder that reads raw patches (``reads_patches``) gets them without embedding
and positions.

A task may compare two sequences that are side by side in a row (``TaskSpec.parts``): each is read alone, by the same
encoder, and the head gets [a, b, a * b, a - b].

    pretraining:  restored_t = W_r y_t                           logits of masked tokens
"""

from collections.abc import Mapping
from math import isqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.agents.config import SequenceClassifierConfig
from recollect.agents.input_checks import require_tokens
from recollect.agents.normalization import Standardization, described_scales
from recollect.agents.registry import REGISTRY
from recollect.agents.saved_model import SavedModel
from recollect.config import from_json, require, to_json
from recollect.cores.input_checks import require_float_dtype
from recollect.encoders.config import EncoderConfig
from recollect.encoders.contract import Encoding, require_rows
from recollect.layers.positions import resize_grid, sinusoid
from recollect.tasks.streams.contract import Batch, Scale

SIZES = ("vocabulary", "input_dim", "num_classes", "length", "parts")  # entries of a task's spec that determine a model


class SequenceClassifier(SavedModel):
    """Tokens or float vectors -> encoder -> one answer a row. Made by :meth:`SequenceClassifierConfig.build`."""

    def __init__(
        self,
        config: SequenceClassifierConfig,
        encoder: EncoderConfig,
        *,
        restores: bool,
        input_scale: Scale | None = None,
        target_scale: Scale | None = None,
        **task: Any,
    ) -> None:
        super().__init__()
        self.input_norm = None if input_scale is None else Standardization(input_scale)
        self.target_norm = None if target_scale is None else Standardization(target_scale)
        self.config, self.encoder_config, self.restores, self.task = config, encoder, restores, task
        self.vocabulary: int | None = task["vocabulary"]
        self.parts: int = task["parts"]
        require(self.parts in (1, 2), "parts", self.parts, "give 1 sequence per row, or 2 that are compared")
        whole = task["length"] % self.parts == 0
        require(whole, "length", task["length"], f"give a multiple of the {self.parts} parts, which have equal lengths")
        length, width = task["length"] // self.parts, config.embedding_dim
        self.raw = encoder.reads_patches
        self._check_patches(length)
        self.embedding: nn.Module
        if self.vocabulary is None:
            require(not restores, "pretraining", True, "choose a task with tokens, which can be masked")
        if self.raw:
            self.embedding, width = nn.Identity(), task["input_dim"]
        elif self.vocabulary is not None:
            embedding = nn.Embedding(self.vocabulary + restores, width)  # the last one is the mask
            nn.init.normal_(embedding.weight, std=config.embedding_std)
            self.embedding = embedding
        else:
            self.embedding = nn.Linear(task["input_dim"], width)
        self.positions = None
        if config.positions in ("learned", "grid"):
            self.positions = nn.Parameter(torch.randn(length, width) * config.embedding_std)
        self.waves: Tensor
        self.register_buffer("waves", sinusoid(torch.arange(length), width), persistent=False)
        self.encoder = encoder.build(width, length)
        out = self.encoder.output_dim
        self.head = nn.Sequential(
            nn.Linear(out * (4 if self.parts == 2 else 1), config.hidden_dim),
            nn.ReLU(),
            nn.Linear(config.hidden_dim, task["num_classes"]),
        )
        self.restore = nn.Linear(out, self.vocabulary) if restores and self.vocabulary is not None else None
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, inputs: Tensor, padding: Tensor | None = None, *, standardized: bool = False) -> Tensor:
        """Return logits, or values in the units of the training data (float64), ``[b, classes]`` of every row.

        Args:
            inputs: tokens, long ``[b, t]``, or raw floats ``[b, t, input_dim]``.
            padding: bool ``[b, t]``, True where there is nothing; None: no padding.
            standardized: return values in standard deviations from their mean, as losses need them.

        Raises:
            ValueError: see :meth:`check`.
        """
        encoding, padding = self.encode(inputs, padding)
        rows = encoding.summary
        if rows is None:
            real = encoding.outputs.shape[1] if padding is None else (~padding).sum(1, keepdim=True).clamp(min=1)
            rows = encoding.outputs.sum(1) / real
        if self.parts == 2:
            one, two = rows.unflatten(0, (-1, 2)).unbind(1)
            rows = torch.cat((one, two, one * two, one - two), -1)
        answers = self.head(rows)
        return answers if standardized or self.target_norm is None else self.target_norm.invert(answers)

    def encode(self, inputs: Tensor, padding: Tensor | None = None) -> tuple[Encoding, Tensor | None]:
        """Encode every part of every row, ``[b * parts, t / parts]`` steps; return the encoding and its padding."""
        self.check(inputs, padding)
        return self._encode(inputs, padding)

    def _encode(self, inputs: Tensor, padding: Tensor | None) -> tuple[Encoding, Tensor | None]:
        inputs = inputs.unflatten(1, (self.parts, -1)).flatten(0, 1)
        if padding is not None:
            padding = padding.unflatten(1, (self.parts, -1)).flatten(0, 1)
        return self._encode_in_groups(self.dropout(self._embed(inputs)), padding), padding

    def _embed(self, inputs: Tensor) -> Tensor:
        """Return embeddings of raw inputs, with their positions."""
        if self.input_norm is not None:
            inputs = self.input_norm(inputs, self.head[0].weight.dtype)
        x = self.embedding(inputs)
        if self.config.positions == "none":
            return x
        table = self.waves if self.positions is None else self.positions
        return x + (resize_grid(table, x.shape[1]) if self.config.positions == "grid" else table[: x.shape[1]])

    def summary_attention(self, inputs: Tensor, *, across_chunks: bool = False) -> Tensor:
        """Return the attention of the encoder's summary to each step, ``[b, t]``, for visualisation.

        Args:
            inputs: of whole rows.
            across_chunks: weights of one softmax over the whole row, also where the encoder reads it in chunks.

        Raises:
            ValueError: see :meth:`check`, or the encoder's summary attends to no single steps.
        """
        self.check(inputs)
        return self.encoder.summary_attention(self._embed(inputs), across_chunks=across_chunks)

    def _encode_in_groups(self, x: Tensor, padding: Tensor | None) -> Encoding:
        """Encode rows of similar length together."""
        groups = min(self.config.length_groups, len(x))
        if padding is None or groups == 1:
            return self.encoder(x, padding)
        steps = torch.arange(1, x.shape[1] + 1, device=x.device)
        lengths = torch.where(padding, 0, steps).amax(1).clamp(min=1)
        order = lengths.argsort(stable=True)
        parts = order.chunk(groups)
        read = []
        for rows, longest in zip(parts, [int(lengths[rows[-1]]) for rows in parts], strict=True):
            outputs, summary = self.encoder(x[rows, :longest], padding[rows, :longest])
            read.append(Encoding(F.pad(outputs, (0, 0, 0, x.shape[1] - longest)), summary))
        back = order.argsort()
        summaries = [summary for _, summary in read if summary is not None]
        return Encoding(
            torch.cat([part.outputs for part in read])[back], torch.cat(summaries)[back] if summaries else None
        )

    def answer(self, batch: Batch) -> Tensor:
        """Return the row's standardised answer at each of its steps, as a sequence model does: ``[b, t, classes]``."""
        logits = self(batch.inputs, batch.padding, standardized=True)
        return logits[:, None].expand(-1, batch.inputs.shape[1], -1)

    def standardize_targets(self, targets: Tensor) -> Tensor:
        """Return values ``[..., k]`` in standard deviations from the mean; classes as they are."""
        return targets if self.target_norm is None else self.target_norm(targets, self.head[0].weight.dtype)

    def restored(self, inputs: Tensor, hidden: Tensor, padding: Tensor | None) -> Tensor:
        """Return logits of masked tokens, ``[b, t, vocabulary]``.

        Args:
            inputs: tokens ``[b, t]``.
            hidden: bool ``[b, t]``: the tokens to mask.
            padding: bool ``[b, t]``, or None.

        Raises:
            ValueError: the model was built without this head, or see :meth:`check`.
        """
        if self.restore is None:
            raise ValueError("this model restores no tokens: build it with restores=True")
        assert self.vocabulary is not None
        self.check(inputs, padding)
        encoding, _ = self._encode(inputs.masked_fill(hidden, self.vocabulary), padding)
        return self.restore(encoding.outputs).unflatten(0, (-1, self.parts)).flatten(1, 2)

    def check(self, inputs: Tensor, padding: Tensor | None = None) -> None:
        """Raise ``ValueError`` unless rank, width, dtype, steps, padding and tokens fit this model.

        Tokens are checked on the CPU alone (in padding too), because on an accelerator the check would wait for the
        device. A token beyond the vocabulary fails there in the lookup, except that a model with masked tokens takes
        the first one for the mask.
        """
        length = self.task["length"]
        if self.vocabulary is None:
            good = inputs.ndim == 3 and inputs.shape[-1] == self.task["input_dim"] and inputs.is_floating_point()
            wanted = f"floats [b, t, {self.task['input_dim']}]"
        else:
            good = inputs.ndim == 2 and inputs.dtype in (torch.int64, torch.int32)
            wanted = "tokens, int64 [b, t]"
        if self.config.positions == "grid" or self.raw:
            steps = "one for each patch of a square image"
            fits = good and isqrt(inputs.shape[1]) ** 2 == inputs.shape[1]
        else:
            steps, fits = f"at most {length} steps", good and inputs.shape[1] <= length
        if not fits or inputs.shape[1] % self.parts:
            raise ValueError(f"inputs are {inputs.dtype} {list(inputs.shape)}; this model takes {wanted}, {steps}")
        require_rows(inputs, padding)
        # The embedding's error would not name the token, and the mask is one more than the vocabulary.
        if self.vocabulary is not None and not torch.compiler.is_compiling():
            require_tokens(inputs, self.vocabulary)
        elif self.input_norm is not None:
            self.input_norm.require_precision(inputs.dtype)
        elif self.vocabulary is None:
            require_float_dtype(inputs, next(self.head.parameters()).dtype)

    def _check_patches(self, length: int) -> None:
        """Raise ``ValueError`` unless rows of this length fit positions and encoder."""
        positions = self.config.positions
        if self.raw:
            place = type(self.encoder_config).__name__
            require(positions == "none", "positions", positions, f'{place} has positions of its own: choose "none"')
            require(self.vocabulary is None and self.parts == 1, "task", self.task, f"{place} reads images only")
        if positions == "grid":
            good = isqrt(length) ** 2 == length and self.parts == 1
            require(good, "positions", positions, f"{length} steps are no square grid of patches: choose another value")

    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data."""
        return {
            "agent": to_json(self.config, REGISTRY),
            "encoder": to_json(self.encoder_config, REGISTRY),
            "restores": self.restores,
            **self.task,
            "has_input_scale": self.input_norm is not None,
            "has_target_scale": self.target_norm is not None,
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any], *, trust: bool = False) -> "SequenceClassifier":
        """Make a model, without weights, from the description in its folder."""
        return cls(
            from_json(description["agent"], SequenceClassifierConfig, REGISTRY, trust=trust),
            from_json(description["encoder"], EncoderConfig, REGISTRY, trust=trust),
            restores=description["restores"],
            **described_scales(description),
            **{name: description[name] for name in SIZES},
        )
