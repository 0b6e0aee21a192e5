"""Encoders of observations: one vector per step.

    encoder = ObservationEncoder(observation_space, EncoderConfig())
    vectors = encoder(observation, lead=2)                # a tree of [b, t, ...] -> [b, t, encoder.dim]

Each part of the observation has its encoder, chosen by its space; the results are concatenated.

    ballet-cnn      images of 99 x 99: one tile of nine pixels per cell                      (image_encoders.py)
    impala-resnet   other images                                                             (image_encoders.py)
    impala-resnet-instance-norm   on request: the same, its map normalised frame by frame    (image_encoders.py)
    nature-cnn      on request: images from 36 x 36                                          (image_encoders.py)
    patches-7       on request: images whose sides 7 divides; also patches-14, -28           (image_encoders.py)
    tiles           integer grids up to 16 cells a side, of up to 65536 symbols: an embedding per cell, then hidden
    told-tiles      on request: such grids with FiLM by a sentence beside them               (Perez et al. 2018)
    mlp             all other numbers: hidden layers
    film-...        on request: images with FiLM by the sentence                             (film_encoders.py)
    words           sentences (key language): word embeddings and an LSTM             (Lampinen et al. 2021, appendix A)
    word-tokens     on request: word embeddings of a sentence side by side, for a core that reads them one by one
    one-hot         Discrete, MultiDiscrete, MultiBinary
"""

from collections.abc import ItemsView, Iterator
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from recollect.agents.encoder_config import EncoderConfig, Kind
from recollect.agents.film_encoders import FILM_ENCODERS, FiLMEncoder
from recollect.agents.image_encoders import IMAGE_ENCODERS, Encoder, ImageEncoder
from recollect.agents.normalization import RunningNorm
from recollect.agents.policies import policy_for
from recollect.agents.spaces import LARGEST_GRID, is_image, parts, split_name, symbols
from recollect.config import require
from recollect.ops.linear import Linear
from recollect.ops.table_sums import table_sums
from recollect.ops.torch_internals import is_traced

MOST_SYMBOLS = 1 << 16  # integers of a wider range are encoded as numbers


class ByPart(nn.ModuleDict):
    """Modules by the names of an observation's parts.

    A submodule cannot be called like an attribute of ModuleDict (``keys``, ``type``, ``training``): such a part, and
    the names of its weights, get a slash behind the name, which no name of a part has.
    """

    taken = frozenset(dir(nn.ModuleDict()))

    def __setitem__(self, part: str, module: nn.Module) -> None:
        super().__setitem__(self._name(part), module)

    def __getitem__(self, part: str) -> nn.Module:
        return super().__getitem__(self._name(part))

    def items(self) -> ItemsView[str, nn.Module]:
        """Return parts and their modules, in order."""
        return {name.removesuffix("/"): module for name, module in super().items()}.items()

    def _name(self, part: str) -> str:
        return f"{part}/" if part in self.taken else part


class ObservationEncoder(nn.Module):
    """Encoder of all parts of an observation, concatenated.

    Args:
        space: of one row's observation; Dict and Tuple may be nested.
        config: settings.

    Raises:
        ValueError: a part cannot be encoded; the message names it, with a remedy.
    """

    def __init__(self, space: spaces.Space[Any], config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.parts = dict(parts(space))
        kinds = dict(config.kinds)
        for name in kinds:
            require(name in self.parts, "kinds", name, f"this observation has the parts {', '.join(self.parts)}")
        if not self.parts:
            raise ValueError(f"observation space {space} is empty: give an observation with at least one part")
        chosen = {name: kinds.get(name) or choose(name, part) for name, part in self.parts.items()}
        self.encoders = ByPart()
        self.sentence: str | None = None
        for name in sorted(chosen, key=lambda name: chosen[name] in FILM_ENCODERS):  # FiLM needs the sentence
            try:
                made = self._make(chosen[name], name)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            self.encoders[name] = made
            if self.sentence is None and isinstance(made, WordLSTM):
                self.sentence = name
        self.keeps_statistics: bool = any(encoder.keeps_statistics for encoder in self.encoders.values())  # type: ignore[misc]
        """Whether some part of the observation is normalised by running statistics."""
        self.dim = sum(encoder.dim for encoder in self.encoders.values())  # type: ignore[misc]

    def _make(self, kind: str, name: str) -> nn.Module:
        """Make the encoder of one part."""
        space, config = self.parts[name], self.config
        if kind in IMAGE_ENCODERS:
            return IMAGE_ENCODERS[kind](
                space, config.channels, scale=config.scale_images, dim=config.image_dim, norm=config.norm_images
            )
        if kind in FILM_ENCODERS:
            if self.sentence is None:
                raise ValueError(f"{kind} needs a sentence, and this observation has no part 'language'")
            require(not config.norm_images, "norm_images", True, f"{kind} reads pixels as they are: leave it off")
            return FILM_ENCODERS[kind](space, config.sentence_dim, config.channels, scale=config.scale_images)
        if kind == "told-tiles":
            words = [other for other, part in self.parts.items() if choose(other, part) == "words"]
            require(len(words) == 1, "kinds", kind, "there must be one sentence beside the grid (language)")
            return FiLMTiles(space, self.parts[words[0]], words[0], config)
        makers = {"tiles": Tiles, "mlp": MLP, "words": WordLSTM, "word-tokens": WordTokens, "one-hot": OneHot}
        return makers[kind](space, config)  # type: ignore[arg-type]  # they check their spaces

    def forward(self, observation: Any, lead: int) -> Tensor:
        """Encode a tree of tensors with ``lead`` axes in front of those of the space.

        Raises:
            ValueError: a part is missing or has the wrong shape.
        """
        leaves = dict(self.leaves(observation, lead))
        encoded: list[Tensor] = []
        sentence = self.encoders[self.sentence](leaves[self.sentence]) if self.sentence else None
        for name, leaf in leaves.items():
            encoder = self.encoders[name]
            if isinstance(encoder, FiLMEncoder):
                encoded.append(encoder(leaf, sentence))
            elif isinstance(encoder, FiLMTiles):
                encoded.append(encoder(leaf, leaves[encoder.sentence]))
            else:
                encoded.append(sentence if sentence is not None and name == self.sentence else encoder(leaf))
        joined = torch.cat(encoded, -1) if len(encoded) > 1 else encoded[0]
        if lead == 1:
            return joined
        _, leaf = next(self.leaves(observation, lead, flat=False))
        return joined.unflatten(0, leaf.shape[:lead])

    @property
    def image_map(self) -> tuple[int, int, int] | None:
        """Rows, columns and channels, where the vector is the map of one image encoder; else None."""
        only = next(iter(self.encoders.values()))
        if len(self.encoders) == 1 and isinstance(only, ImageEncoder) and isinstance(only.project, nn.Identity):
            return (*only.map_sides, only.channels[-1])
        return None

    @property
    def film_map(self) -> tuple[int, int, int] | None:
        """Offset in the vector, number of places and depth of the first FiLM encoder's map; None without one."""
        offset = 0
        for name in self.parts:
            encoder = cast(Encoder, self.encoders[name])
            if isinstance(encoder, FiLMEncoder):
                return offset, encoder.places, encoder.depth
            offset += encoder.dim
        return None

    def update_statistics(self, observation: Any) -> None:
        """Update running statistics with a tree of ``[b, t, ...]`` (``norm_numbers``, ``norm_images``)."""
        for name, leaf in self.leaves(observation, 2):
            cast(Encoder, self.encoders[name]).update_statistics(leaf)

    def leaves(self, observation: Any, lead: int, *, flat: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Yield ``(name, tensor)`` of every part, with the leading axes flattened where ``flat``."""
        begins: torch.Size | None = None
        for name, space in self.parts.items():
            leaf = _pick(observation, name, space)
            if leaf.ndim != lead + len(space.shape or ()) or leaf.shape[lead:] != (space.shape or ()):
                axes = ", ".join(["b", "t"][:lead] + [str(size) for size in space.shape or ()])
                raise ValueError(f"{name} has shape {list(leaf.shape)}; this agent takes [{axes}]")
            begins = leaf.shape[:lead] if begins is None else begins
            if leaf.shape[:lead] != begins:  # flattened, rows and steps of the parts could be mixed in silence
                raise ValueError(
                    f"{name} has shape {list(leaf.shape)}; the parts before it begin with {list(begins)}: give all "
                    "parts of the same rows and steps"
                )
            yield name, leaf.flatten(0, lead - 1) if flat and lead > 1 else leaf


def choose(name: str, space: spaces.Space[Any]) -> Kind:
    """Return the default encoder of a part of an observation.

    Raises:
        ValueError: no encoder fits its space.
    """
    if isinstance(space, spaces.MultiDiscrete):
        if name.rpartition("/")[2] == "language" and len(space.shape) == 1:
            return "words"
        return "tiles" if len(space.shape) in (2, 3) else "one-hot"
    if isinstance(space, (spaces.Discrete, spaces.MultiBinary)):
        return "one-hot"
    if isinstance(space, spaces.Box):
        if np.issubdtype(space.dtype, np.integer) and _is_grid(space):
            return "tiles"
        if not is_image(space):
            return "mlp"
        return "ballet-cnn" if space.shape[:2] == (99, 99) else "impala-resnet"
    raise ValueError(
        f"{name}: an agent cannot read a {type(space).__name__} space ({space}); it reads Box, Discrete, "
        "MultiDiscrete, MultiBinary, and Dict and Tuple of these: turn it into one of them with an observation wrapper"
    )


def _pick(observation: Any, name: str, space: spaces.Space[Any]) -> Tensor:
    if isinstance(observation, Tensor):
        if name == "observation":
            return observation
        raise ValueError(f"observation is one tensor; this agent also needs the part {name!r}: give a dict")
    for key in split_name(name, "/"):
        try:
            observation = observation[key] if isinstance(observation, dict) else observation[int(key)]
        except (KeyError, IndexError, ValueError, TypeError):
            raise ValueError(f"observation has no part {name!r}; this agent needs it, of {space}") from None
    if not isinstance(observation, Tensor):
        raise ValueError(f"{name} is a {type(observation).__name__}; this agent takes a tensor, of {space}")
    return observation


def _is_grid(space: spaces.Box) -> bool:
    small = len(space.shape) in (2, 3) and 0 not in space.shape and max(space.shape[:2]) <= LARGEST_GRID
    low, high = symbols(space)
    return small and high - low < MOST_SYMBOLS


class Layers(nn.Sequential):
    """Linear maps with an activation (``relu`` or ``tanh``) after each, from ``dim`` to ``widths``, layer by layer."""

    def __init__(self, dim: int, widths: tuple[int, ...], activation: str) -> None:
        made: list[nn.Module] = []
        for before, width in pairwise((dim, *widths)):
            made += [Linear(before, width), nn.ReLU() if activation == "relu" else nn.Tanh()]
        super().__init__(*made)
        self.dim = widths[-1] if widths else dim


class MLP(Encoder):
    """Numbers (a Box of any shape), flattened, through ``hidden`` layers."""

    def __init__(self, space: spaces.Box, config: EncoderConfig) -> None:
        super().__init__()
        if not isinstance(space, spaces.Box) or 0 in space.shape:
            raise ValueError(f"{space} holds no numbers: use a Box that is not empty")
        self.scale = 1 / 255 if space.dtype == np.uint8 and space.high.max() > 1 and config.scale_images else 1.0
        self.width = width = int(np.prod(space.shape))
        self.norm = RunningNorm(width) if config.norm_numbers else None
        self.keeps_statistics = config.norm_numbers
        self.layers = Layers(width, config.hidden, config.activation)
        self.dim = self.layers.dim
        self.register_buffer("like", torch.zeros(()), persistent=False)

    like: Tensor  # A scalar of the dtype of the layers

    def forward(self, observation: Tensor) -> Tensor:
        """Encode numbers ``[n, *space.shape]`` as features ``[n, dim]``."""
        flat = self._flat(observation)
        return self.layers(flat if self.norm is None else self.norm(flat))

    def update_statistics(self, observation: Tensor) -> None:
        """Update the running statistics, if there are any, with ``[n, *space.shape]``."""
        if self.norm is not None:
            self.norm.update(self._flat(observation))

    def _flat(self, observation: Tensor) -> Tensor:
        flat = observation.reshape(observation.shape[0], self.width).to(self.like.dtype)
        return flat * self.scale if self.scale != 1 else flat


class Tiles(Encoder):
    """A grid of symbols: an embedding per cell (the sum over its channels), then ``hidden`` layers.

    The least symbol of every channel is initially the zero vector: it nearly always means an empty cell, and the many
    constant cells would dominate the few that change.

    Args:
        space: MultiDiscrete or integer Box of shape [y, x] or [y, x, c].
        config: settings.
    """

    def __init__(self, space: spaces.Space[Any], config: EncoderConfig) -> None:
        super().__init__()
        low, high = symbols(space)
        assert space.shape is not None
        if len(space.shape) not in (2, 3) or high - low >= MOST_SYMBOLS:
            raise ValueError(f"{space} is no grid of symbols: [y, x] or [y, x, c] of few different integers")
        y, x, c = (*space.shape, 1)[:3]
        self.sides, self.cells = (y, x, c), y * x
        self.shape = space.shape
        self.low, self.vocabulary = low, high - low + 1
        self.table = nn.Embedding(c * self.vocabulary, config.tile_dim)
        nn.init.normal_(self.table.weight, std=c**-0.5)
        with torch.no_grad():
            self.table.weight[:: self.vocabulary] = 0
        self.register_buffer("offset", torch.arange(c, dtype=torch.int32) * self.vocabulary - low, persistent=False)
        self.width = y * x * config.tile_dim
        self.layers = Layers(self.width, config.hidden, config.activation)
        self.dim = self.layers.dim

    offset: Tensor

    def forward(self, observation: Tensor) -> Tensor:
        """Encode grids of symbols ``[n, y, x(, c)]`` as features ``[n, dim]``."""
        index = observation.reshape(-1, self.sides[2]).int() + self.offset
        cells = table_sums(index, self.table.weight)  # n*y*x d
        return self.layers(cells.reshape(observation.shape[0], self.width))


class FiLMTiles(Tiles):
    """A grid of symbols with FiLM by a sentence.

        g, s = sum over words i of table[word_i] * (1 + place_i)          2 x tile_dim numbers
        cell'  = relu(W_2 relu((1 + g) * W_1 cell + s))                   for every cell, then hidden layers

    Perez et al. (2018), FiLM: visual reasoning with a general conditioning layer; the first agents of BabyAI did this.

    Args:
        space: of the grid, as for :class:`Tiles`.
        words: of the sentence, as for :class:`WordTokens`.
        sentence: name of the part that is the sentence.
        config: settings.
    """

    def __init__(
        self, space: spaces.Space[Any], words: spaces.Space[Any], sentence: str, config: EncoderConfig
    ) -> None:
        super().__init__(space, config)
        self.sentence = sentence
        width, (number,) = config.tile_dim, words.shape or (0,)
        self.words = nn.Embedding(symbols(words)[1] + 1, 2 * width, padding_idx=0)
        nn.init.normal_(self.words.weight, std=0.5)
        with torch.no_grad():
            self.words.weight[0] = 0
        self.places = nn.Parameter(torch.randn(number, 2 * width) * 0.5)
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, observation: Tensor, words: Tensor) -> Tensor:  # type: ignore[override]
        """Encode grids of symbols ``[n, y, x(, c)]``, modulated by sentences ``[n, words]``: ``[n, dim]``."""
        index = observation.reshape(-1, self.sides[2]).int() + self.offset
        cells = table_sums(index, self.table.weight).unflatten(0, (observation.shape[0], self.cells))  # n yx d
        scale, shift = (self.words(words.int()) * (1 + self.places)).sum(1, keepdim=True).chunk(2, -1)
        cells = F.relu(self.outer(F.relu(self.inner(cells) * (1 + scale) + shift)))
        return self.layers(cells.flatten(1))


class WordLSTM(Encoder):
    """A sentence: word embeddings through one LSTM layer; its output at the last word, or zeros without words.

    Most steps of a batch have the same few sentences, so each different one is encoded once.

    Args:
        space: MultiDiscrete, one entry per word, 0 is padding (at the end).
        config: settings.
    """

    def __init__(self, space: spaces.Space[Any], config: EncoderConfig) -> None:
        super().__init__()
        self.num_words, self.vocabulary = _sentence_shape(space)
        self.table = nn.Embedding(self.vocabulary, config.word_dim)
        self.lstm = nn.LSTM(config.word_dim, config.sentence_dim, batch_first=True)
        self.norm = nn.LayerNorm(config.sentence_dim) if config.norm_sentences else nn.Identity()
        self.dim = config.sentence_dim
        self.register_buffer("all_words", torch.arange(self.vocabulary)[:, None], persistent=False)

    all_words: Tensor

    def forward(self, observation: Tensor) -> Tensor:
        """Encode sentences ``[n, words]`` as features ``[n, dim]``."""
        words = observation.long()
        # is_traced comes before sizes: a comparison of sizes would become a guard on the batch in exported programs.
        if is_traced() or words.device.type != "cpu" or len(words) == 1:  # counting would wait for the device
            return self.read(words)
        if self.num_words == 1 and self.vocabulary < len(words):
            return F.embedding(words[:, 0], self.read(self.all_words))
        different, which = words.unique(dim=0, return_inverse=True)
        return self.read(different).index_select(0, which)

    def read(self, words: Tensor) -> Tensor:
        """Encode sentences ``[s, words] -> [s, dim]``."""
        embedded = self.table(words)
        outputs = _unroll_lstm(self.lstm, embedded) if is_traced() else self.lstm(embedded)[0]
        position = torch.arange(1, self.num_words + 1, device=words.device)
        length = torch.where(words != 0, position, 0).amax(1)  # s
        last = (length - 1).clamp(min=0)[:, None, None].expand(-1, 1, self.dim)
        return torch.where(length[:, None] > 0, self.norm(outputs.gather(1, last)[:, 0]), 0.0)


def _unroll_lstm(lstm: nn.LSTM, inputs: Tensor) -> Tensor:
    """Return the outputs of a one-layer LSTM for ``[s, t, d]``; torch's own makes the number of rows a constant."""
    input_weight, weight, input_bias, bias = lstm.all_weights[0]
    gates = F.linear(inputs, input_weight, input_bias + bias)
    hidden = cell = gates.new_zeros(gates.shape[0], lstm.hidden_size)
    outputs = []
    for step in gates.unbind(1):
        i, f, g, o = (step + hidden @ weight.T).chunk(4, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs, 1)


class WordTokens(Encoder):
    """A sentence as word embeddings side by side, padding included; ``space`` as for :class:`WordLSTM`."""

    def __init__(self, space: spaces.Space[Any], config: EncoderConfig) -> None:
        super().__init__()
        num_words, vocabulary = _sentence_shape(space)
        self.table = nn.Embedding(vocabulary, config.word_dim)
        self.dim = num_words * config.word_dim

    def forward(self, observation: Tensor) -> Tensor:
        """Embed the words of sentences ``[n, words]``, side by side: ``[n, words * word_dim]``."""
        return self.table(observation.int()).flatten(1)


class OneHot(Encoder):
    """Choices (Discrete, MultiDiscrete or MultiBinary) as one-hot vectors side by side."""

    def __init__(self, space: spaces.Space[Any], config: EncoderConfig) -> None:
        super().__init__()
        if not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
            raise ValueError(f"{space} holds no choices: use Discrete, MultiDiscrete or MultiBinary")
        self.choices = policy_for(space)  # observed choices and actions are encoded alike
        self.dim = self.choices.encoding_dim
        sizes = torch.tensor(_choice_counts(space))
        lengths = sizes.float().sqrt().repeat_interleave(sizes) if config.norm_choices else None
        self.register_buffer("lengths", lengths, persistent=False)
        self.register_buffer("like", torch.zeros(()), persistent=False)

    lengths: Tensor | None  # length of the one-hot vector of each column, `[dim]`; None: all are 1
    like: Tensor  # A scalar of the dtype of the following layers

    def forward(self, observation: Tensor) -> Tensor:
        """Encode choices ``[n, *space.shape]`` as one-hot vectors, side by side: ``[n, dim]``."""
        encoded = self.choices.encode(observation).to(self.like.dtype)
        return encoded if self.lengths is None else encoded * self.lengths


def _choice_counts(space: spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary) -> list[int]:
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.nvec).reshape(-1).tolist()
    return [2] * int(np.prod(space.shape))


def _sentence_shape(space: spaces.Space[Any]) -> tuple[int, int]:
    """Return the number of words of a sentence, and of the vocabulary."""
    if not isinstance(space, spaces.MultiDiscrete) or len(space.shape) != 1 or symbols(space)[0] != 0:
        raise ValueError(f"{space} holds no sentences: use MultiDiscrete([vocabulary] * words), 0 is padding")
    return space.shape[0], symbols(space)[1] + 1
