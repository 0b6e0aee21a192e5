"""Settings of :class:`~recollect.agents.encoders.ObservationEncoder`."""

from dataclasses import dataclass
from typing import Literal, get_args

from recollect.config import require, require_one_of, require_types

Film = Literal["film-cnn", "film-resnet", "film-efficientnet-b0", "film-efficientnet-b3"]
Kind = (
    Literal[
        "ballet-cnn",
        "impala-resnet",
        "impala-resnet-instance-norm",
        "nature-cnn",
        "patches-7",
        "patches-14",
        "patches-28",
        "tiles",
        "told-tiles",
        "mlp",
        "words",
        "word-tokens",
        "one-hot",
    ]
    | Film
)
KNOWN = tuple(name for part in get_args(Kind) for name in get_args(part) or (part,))


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Settings of the encoders that turn observations into vectors."""

    kinds: tuple[tuple[str, str], ...] = ()
    """Pairs (part, kind) that replace the automatic choice; a part is a key of a Dict, or ``observation``."""
    channels: tuple[int, ...] | None = None
    """Widths of an image encoder's three stages; None: 16, 32, 32, and 32, 64, 64 for nature-cnn. Patches use the
    last one."""
    image_dim: int | None = None
    """Width of a layer with ReLU after an image's map; None: the map itself, ordered row, column, channel."""
    scale_images: bool = True
    """Divide uint8 by 255."""
    norm_images: bool = False
    """Normalise every pixel to mean 0 and variance 1 by running statistics. Needed where a small ball on a large
    background determines the return (docs/log.md)."""
    hidden: tuple[int, ...] = (64,)
    """Widths of the layers that read numbers and tiles; may be empty."""
    activation: Literal["relu", "tanh"] = "relu"
    """Activation after each of ``hidden``."""
    norm_numbers: bool = False
    """Normalise numbers to mean 0 and variance 1 by running statistics."""
    norm_choices: bool = False
    """Encode one of n choices as a vector of length sqrt(n) instead of 1, with entries as large as normalised numbers.
    At length 1 the common part of all choices outweighs their differences (docs/log.md)."""
    tile_dim: int = 16
    """Width of a cell's embedding."""
    word_dim: int = 32
    """Width of a word's embedding."""
    sentence_dim: int = 256
    """Width of the LSTM that reads the words."""
    norm_sentences: bool = False
    """Normalise the LSTM's output. Without training it is small beside the encoding of an image, and a memory cannot be
    queried by words (docs/log.md)."""

    def __post_init__(self) -> None:
        require_types(self)
        for part, kind in self.kinds:
            require(kind in KNOWN, "kinds", f"{part}: {kind}", f"choose one of {', '.join(KNOWN)}")
        three = self.channels is None or (len(self.channels) == 3 and min(self.channels) > 0)
        require(three, "channels", self.channels, "give three positive widths, or None")
        require(all(width > 0 for width in self.hidden), "hidden", self.hidden, "give positive widths")
        require_one_of(self, "activation")
        dim = self.image_dim
        require(dim is None or dim > 0, "image_dim", dim, "give a positive width, or None")
        for field in ("tile_dim", "word_dim", "sentence_dim"):
            require(getattr(self, field) > 0, field, getattr(self, field), "give a positive width")
