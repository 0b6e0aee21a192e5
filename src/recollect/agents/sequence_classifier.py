"""One answer for a whole row: tokens or float vectors in, an encoder that sees all of them, classes out.

    e_t = embedding[token_t]  (or W_in x_t)  + P_t               P: positions of the whole row
    y, s = encoder(e, padding)
    row = the encoder's own summary s, or the mean of y over the steps that are not padding
    logits = W_2 relu(W_1 row)

For pictures as rows of patches (``positions="grid"``) P is a table of the square grid of patches, which is
interpolated for a picture of another resolution. An encoder that reads patches as they are (``reads_patches``) gets
them without embedding and positions.

A task may ask about several sequences that stand side by side in a row (``TaskSpec.parts``): each is read alone, by
the same encoder, and for two of them the head gets [a, b, a * b, a - b].

    pretraining:  restored_t = W_r y_t                           the tokens that were hidden
"""

from math import isqrt
from os import PathLike
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.agents.config import SequenceClassifierConfig
from recollect.agents.folders import read_description, read_weights, write_model
from recollect.agents.registry import REGISTRY
from recollect.agents.tokens import require_tokens
from recollect.config import from_json, require, to_json
from recollect.encoders.contract import EncoderConfig, Encoding, require_rows
from recollect.layers.positions import resize_grid, sinusoid
from recollect.tasks.streams.contract import Batch

SIZES = ("vocabulary", "input_dim", "num_classes", "length", "parts")
"""What a model needs to know of a task's spec."""


class SequenceClassifier(nn.Module):
    """Tokens or float vectors -> encoder -> one answer a row. Made by :meth:`SequenceClassifierConfig.build`."""

    def __init__(
        self,
        config: SequenceClassifierConfig,
        encoder: EncoderConfig,
        *,
        restores: bool,
        **task: Any,
    ) -> None:
        super().__init__()
        self.config, self.encoder_config, self.restores, self.task = config, encoder, restores, task
        self.vocabulary: int | None = task["vocabulary"]
        self.parts: int = task["parts"]
        require(self.parts in (1, 2), "parts", self.parts, "a row has one sequence, or two that are compared")
        whole = task["length"] % self.parts == 0
        require(whole, "length", task["length"], f"the {self.parts} parts of a row must be of equal length")
        length, width = task["length"] // self.parts, config.embedding_dim
        self.raw = encoder.reads_patches
        self._check_pictures(length)
        self.embedding: nn.Module
        if self.vocabulary is None:
            require(not restores, "pretraining", True, "only tokens can be hidden and restored")
        if self.raw:
            self.embedding, width = nn.Identity(), task["input_dim"]
        elif self.vocabulary is not None:
            embedding = nn.Embedding(self.vocabulary + restores, width)  # the last one hides a token
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

    def forward(self, inputs: Tensor, padding: Tensor | None = None) -> Tensor:
        """One answer a row.

        Args:
            inputs: tokens, long ``[b, t]``, or floats ``[b, t, input_dim]``.
            padding: bool ``[b, t]``, True where there is nothing; None pads nothing.

        Returns:
            Logits ``[b, classes]``.

        Raises:
            ValueError: what :meth:`check` refuses.
        """
        encoding, padding = self.encode(inputs, padding)
        rows = encoding.summary
        if rows is None:
            real = encoding.outputs.shape[1] if padding is None else (~padding).sum(1, keepdim=True).clamp(min=1)
            rows = encoding.outputs.sum(1) / real
        if self.parts == 2:
            one, two = rows.unflatten(0, (-1, 2)).unbind(1)
            rows = torch.cat((one, two, one * two, one - two), -1)
        return self.head(rows)

    def encode(self, inputs: Tensor, padding: Tensor | None = None) -> tuple[Encoding, Tensor | None]:
        """What the encoder makes of every part of every row, ``[b * parts, t / parts]`` steps, and their padding."""
        self.check(inputs, padding)
        return self._read(inputs, padding)

    def _read(self, inputs: Tensor, padding: Tensor | None) -> tuple[Encoding, Tensor | None]:
        """As :meth:`encode`, of inputs that were checked."""
        inputs = inputs.unflatten(1, (self.parts, -1)).flatten(0, 1)
        if padding is not None:
            padding = padding.unflatten(1, (self.parts, -1)).flatten(0, 1)
        return self._grouped(self.dropout(self._placed(inputs)), padding), padding

    def _placed(self, inputs: Tensor) -> Tensor:
        """Embeddings with their positions."""
        x = self.embedding(inputs)
        if self.config.positions == "none":
            return x
        table = self.waves if self.positions is None else self.positions
        return x + (resize_grid(table, x.shape[1]) if self.config.positions == "grid" else table[: x.shape[1]])

    def summary_attention(self, inputs: Tensor) -> Tensor:
        """How much attention the encoder's summary gives to each step, ``[b, t]``, for pictures of it.

        Raises:
            ValueError: wrong inputs, or an encoder that sums up without attention to single steps.
        """
        self.check(inputs)
        return self.encoder.summary_attention(self._placed(inputs))

    def _grouped(self, x: Tensor, padding: Tensor | None) -> Encoding:
        """The encoder's reading of rows, those of like length together."""
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
        """The row's answer at each of its steps, as a sequence model gives it: ``[b, t, classes]``."""
        logits = self(batch.inputs, batch.padding)
        return logits[:, None].expand(-1, batch.inputs.shape[1], -1)

    def restored(self, inputs: Tensor, hidden: Tensor, padding: Tensor | None) -> Tensor:
        """What the model thinks that hidden tokens are.

        Args:
            inputs: tokens ``[b, t]``.
            hidden: bool ``[b, t]``: those that it does not see.
            padding: bool ``[b, t]``, or None.

        Returns:
            Logits ``[b, t, vocabulary]``.

        Raises:
            ValueError: the model was built without this, or what :meth:`check` refuses.
        """
        if self.restore is None:
            raise ValueError("this model restores no tokens: build it with restores=True")
        assert self.vocabulary is not None
        self.check(inputs, padding)
        encoding, _ = self._read(inputs.masked_fill(hidden, self.vocabulary), padding)
        return self.restore(encoding.outputs).unflatten(0, (-1, self.parts)).flatten(1, 2)

    def check(self, inputs: Tensor, padding: Tensor | None = None) -> None:
        """Raise ``ValueError`` unless these are inputs of this model: rank, width, dtype, steps, padding and tokens.

        Tokens are looked at on the CPU alone, in padded steps too: on an accelerator the look would wait for the
        device. A token beyond the vocabulary fails there in the lookup, but for the first one of a model that restores
        hidden tokens, which it takes for a hidden one.
        """
        length = self.task["length"]
        if self.vocabulary is None:
            good = inputs.ndim == 3 and inputs.shape[-1] == self.task["input_dim"] and inputs.is_floating_point()
            wanted = f"floats [b, t, {self.task['input_dim']}]"
        else:
            good = inputs.ndim == 2 and inputs.dtype in (torch.int64, torch.int32)
            wanted = "tokens, int64 [b, t]"
        if self.config.positions == "grid" or self.raw:
            steps, fits = (
                "one for each patch of a square picture",
                good and isqrt(inputs.shape[1]) ** 2 == inputs.shape[1],
            )
        else:
            steps, fits = f"at most {length} steps", good and inputs.shape[1] <= length
        if not fits or inputs.shape[1] % self.parts:
            raise ValueError(f"inputs are {inputs.dtype} {list(inputs.shape)}; this model takes {wanted}, {steps}")
        require_rows(inputs, padding)
        # The embedding would not name the token, and has one more than the vocabulary where it restores.
        if self.vocabulary is not None and not torch.compiler.is_compiling():
            require_tokens(inputs, self.vocabulary)

    def _check_pictures(self, length: int) -> None:
        """Raise ``ValueError`` unless rows of this length fit positions and encoder."""
        positions = self.config.positions
        if self.raw:
            place = type(self.encoder_config).__name__
            require(positions == "none", "positions", positions, f'{place} places patches itself: choose "none"')
            require(self.vocabulary is None and self.parts == 1, "task", self.task, f"{place} reads pictures alone")
        if positions == "grid":
            good = isqrt(length) ** 2 == length and self.parts == 1
            require(good, "positions", positions, f"{length} steps are no square grid of patches")

    def save(self, folder: str | PathLike[str]) -> None:
        """Write ``model.json`` and ``weights.safetensors`` into a folder (each beside the old one, then renamed)."""
        description = {
            "agent": to_json(self.config, REGISTRY),
            "encoder": to_json(self.encoder_config, REGISTRY),
            "restores": self.restores,
            **self.task,
        }
        write_model(folder, self, description)

    @staticmethod
    def load(folder: str | PathLike[str], device: torch.device | str = "cpu") -> "SequenceClassifier":
        """The model that :meth:`save` wrote, in ``eval`` mode.

        Raises:
            ValueError: a file is missing, ``model.json`` lacks something, or its config names an unknown encoder.
        """
        description = read_description(folder, "SequenceClassifier")
        model = SequenceClassifier(
            from_json(description["agent"], SequenceClassifierConfig, REGISTRY),
            from_json(description["encoder"], EncoderConfig, REGISTRY),
            restores=description["restores"],
            **{name: description[name] for name in SIZES},
        )
        read_weights(folder, model)
        return model.to(device).eval()
