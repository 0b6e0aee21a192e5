"""How what an agent sees becomes vectors: the config of :class:`~recollect.agents.encoders.ObservationEncoder`."""

from dataclasses import dataclass
from typing import Literal, get_args

from recollect.config import require, require_types

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
    """How observations become vectors."""

    kinds: tuple[tuple[str, str], ...] = ()
    """Pairs (part, kind) where the automatic choice is not wanted: a key of a Dict, or ``observation``."""
    channels: tuple[int, ...] | None = None
    """Widths of an image encoder's three stages; None: 16, 32, 32, and 32, 64, 64 for nature-cnn. Patches have the
    last one's."""
    image_dim: int | None = None
    """Width of a layer with ReLU behind an image's map; None: the map itself, ordered row, column, channel."""
    scale_images: bool = True
    """Divide uint8 by 255; off shows raw 0..255."""
    norm_images: bool = False
    """Bring every pixel to mean 0 and variance 1, by running statistics that training keeps. Where a small ball on a
    large background decides, learning begins with it (docs/log.md)."""
    hidden: tuple[int, ...] = (64,)
    """Widths of the layers after numbers and tiles; may be empty."""
    activation: Literal["relu", "tanh"] = "relu"
    """After each of ``hidden``."""
    norm_numbers: bool = False
    """Bring numbers to mean 0 and variance 1, by running statistics that training keeps."""
    norm_choices: bool = False
    """Show one of n choices as a vector of length sqrt(n) instead of 1, whose numbers are as large as normalised ones.
    At 1, what all choices have in common outweighs which one it is (docs/log.md)."""
    tile_dim: int = 16
    """Width of a cell's embedding."""
    word_dim: int = 32
    """Width of a word's embedding."""
    sentence_dim: int = 256
    """Width of the LSTM that reads the words."""
    norm_sentences: bool = False
    """Normalise the LSTM's output. Untrained it is small beside the encoding of an image, and a memory that is asked in
    words finds nothing by them (docs/log.md)."""

    def __post_init__(self) -> None:
        require_types(self)
        for part, kind in self.kinds:
            require(kind in KNOWN, "kinds", f"{part}: {kind}", f"choose one of {', '.join(KNOWN)}")
        three = self.channels is None or (len(self.channels) == 3 and min(self.channels) > 0)
        require(three, "channels", self.channels, "give three positive widths, or None")
        require(all(width > 0 for width in self.hidden), "hidden", self.hidden, "give positive widths")
        require(self.activation in ("relu", "tanh"), "activation", self.activation, "choose 'relu' or 'tanh'")
        dim = self.image_dim
        require(dim is None or dim > 0, "image_dim", dim, "give a positive width, or None")
        for field in ("tile_dim", "word_dim", "sentence_dim"):
            require(getattr(self, field) > 0, field, getattr(self, field), "give a positive width")
