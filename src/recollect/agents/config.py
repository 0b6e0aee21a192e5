"""Settings of the agents. Importing them does not import torch; ``build`` makes the module."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from recollect.agents.encoder_config import EncoderConfig
from recollect.config import require, require_one_of, require_types

if TYPE_CHECKING:
    import gymnasium

    from recollect.agents.activity_detector import ActivityDetector
    from recollect.agents.actor_critic import ActorCritic
    from recollect.agents.decision_transformer import DecisionTransformer
    from recollect.agents.sequence_classifier import SequenceClassifier
    from recollect.agents.sequence_model import SequenceModel
    from recollect.agents.sit import SiT
    from recollect.cores.config import CoreConfig
    from recollect.encoders.config import EncoderConfig as SequenceEncoderConfig
    from recollect.tasks.streams.contract import Scale, TaskSpec


def _require_positive(config: object, *fields: str, optional: bool = False) -> None:
    for name in fields:
        value = getattr(config, name)
        fits = value > 0 if value is not None else optional
        require(fits, name, value, f"give a positive number{', or None' if optional else ''}")


def _require_probability(config: object, name: str) -> None:
    value = getattr(config, name)
    require(0 <= value < 1, name, value, "give a probability in [0, 1)")


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig:
    """Policy and value around a core, from observations, actions and rewards."""

    RENAMED_VALUES: ClassVar[dict[str, dict[str | bool, str]]] = {"previous_action": {True: "action", False: "none"}}

    encoders: EncoderConfig = field(default_factory=EncoderConfig)
    """Encoders of the observations."""
    width: int | None = 128
    """Width of the core's input (of one token, for cores that read tokens). None: that of the encoders' vectors,
    which a core that reads one vector a step gets unchanged."""
    previous_action: Literal["none", "action", "logits"] = "action"
    """Input about the previous step: the action; the logits of the policy that drew it, as computed then (George 2021);
    or nothing."""
    previous_reward: bool = True
    """Read the previous reward."""
    past_dim: int | None = None
    """Width of a linear embedding of the previous action and reward, with standard normal initial weights as in
    nn.Embedding. None: one number per action, which next to symbols of 64 numbers has little effect until the weights
    that read it have grown (docs/log.md)."""
    clip_reward: float | None = None
    """Absolute bound on the reward that is read; 1 as in IMPALA. None: no bound."""
    norm_inputs: bool = True
    """Normalise the core's input, where a linear map makes it (``width`` is not None, or the core reads tokens).
    Memories compare inputs of different times, and the vectors of untrained encoders are too small for attention to
    distinguish them."""
    norm: bool = True
    """Normalise the core's output before the heads."""
    skip: bool = False
    """Give the heads the core's input beside its output. The output of an untrained memory is nearly the same for every
    observation, and a policy learns from that common part first (docs/log.md)."""
    head_dim: int | None = None
    """Width of a hidden ReLU layer in each head (512 in Lampinen et al. 2021). None: linear heads."""
    norm_values: bool = False
    """Predict returns in units of their running mean and deviation (PopArt)."""
    policy_gain: float = 0.01
    """Scale of the policy head's initial weights; a small one makes the initial policy nearly uniform."""
    reconstruct: bool = False
    """Add decoders of images, tiles and words from the features, for an auxiliary loss."""

    def __post_init__(self) -> None:
        require_types(self)
        require_one_of(self, "previous_action")
        _require_positive(self, "width", "past_dim", "head_dim", "clip_reward", optional=True)
        _require_positive(self, "policy_gain")

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Training aids in a few words each, for tables."""
        return ("reconstruction",) if self.reconstruct else ()

    def build(
        self,
        core: "CoreConfig",
        observation_space: "gymnasium.Space[Any]",
        action_space: "gymnasium.Space[Any]",
        *,
        num_labels: int = 0,
        labels_per_step: int = 1,
    ) -> "ActorCritic":
        """Make the agent for one core and one world.

        Args:
            core: the memory.
            observation_space: of one row.
            action_space: of one row.
            num_labels: classes of an auxiliary head that names what must be remembered; 0: no such head.
            labels_per_step: labels that the head names at a step.

        Raises:
            ValueError: a space that the agent cannot read or act in, with a remedy.
        """
        from recollect.agents.actor_critic import ActorCritic

        return ActorCritic(
            self, core, observation_space, action_space, num_labels=num_labels, labels_per_step=labels_per_step
        )


@dataclass(frozen=True, kw_only=True)
class DecisionTransformerConfig:
    """Actions from the returns-to-go, observations and actions of a context."""

    width: int = 128
    """Width of a token."""
    context: int = 30
    """C: most steps in a context."""
    stride: int = 1
    """Steps that a full context drops at a time in play: 1 as published, more to read the context again less often."""
    target_return: float = 1.0
    """Return to reach in play."""
    return_scale: float = 1.0
    """Divisor of the returns-to-go."""
    timestep: Literal["first", "each", "none"] = "first"
    """Time since the episode's start that is embedded: of the context's first step, of each step, or none."""
    max_timestep: int = 10_000
    """Largest embedded time; later steps share it."""
    dropout: float = 0.1
    """Dropout rate of the tokens."""
    encoders: EncoderConfig = field(default_factory=EncoderConfig)
    """Encoders of the observations."""

    def __post_init__(self) -> None:
        require_types(self)
        require_one_of(self, "timestep")
        _require_positive(self, "width", "return_scale", "max_timestep")
        require(self.context >= 2, "context", self.context, "give at least 2 steps")
        fits = 1 <= self.stride < self.context
        require(fits, "stride", self.stride, f"give 1 to {self.context - 1} steps of a context of {self.context}")
        _require_probability(self, "dropout")

    def build(
        self, core: "CoreConfig", observation_space: "gymnasium.Space[Any]", action_space: "gymnasium.Space[Any]"
    ) -> "DecisionTransformer":
        """Make the agent for one core and one world.

        Raises:
            ValueError: a space that the agent cannot read or act in, or a core that takes no plain vectors.
        """
        from recollect.agents.decision_transformer import DecisionTransformer

        return DecisionTransformer(self, core, observation_space, action_space)


@dataclass(frozen=True, kw_only=True)
class SequenceModelConfig:
    """One answer per step around a core, from tokens or vectors."""

    embedding_dim: int = 64
    """Width of a token's embedding (or of the projected float input) that the core reads."""
    readout: Literal["linear", "mlp", "pointer"] = "linear"
    """Map from the core's output to logits: one matrix, the same after a hidden layer of twice the width, or dot
    products with the newest items, which are the choices."""
    identity_readout: bool = False
    """Initialise a pointer's matrix as the identity: the first choice is then the item most similar to the core's
    output. For cores whose outputs are as wide as items and keep the directions of their inputs."""
    norm_inputs: bool = False
    """Normalise each step of a float input to mean 0 and variance 1 before the projection."""
    given_memory: Literal["none", "shared", "streamed"] = "none"
    """Read the first episode of a row as a memory and each later one as a question about it: the memory as chunks
    shared by all layers (hcam only), or as a stream that every question continues. Whole rows only."""

    whole_rows: bool = False
    """Read every row at once, with the core's ``encode``: tlb with ``causal=False`` then looks both ways inside a
    chunk, as the paper does for classification. For tasks that are not autoregressive, with one episode per row."""

    def __post_init__(self) -> None:
        require_types(self)
        require_one_of(self, "readout", "given_memory")
        _require_positive(self, "embedding_dim")
        points = self.readout == "pointer" or not self.identity_readout
        require(points, "identity_readout", True, f"readout={self.readout!r} gives classes: choose 'pointer'")
        both = self.whole_rows and self.given_memory != "none"
        require(not both, "whole_rows", True, "given_memory reads a row in parts: choose one of the two")

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Training aids in a few words each, for tables."""
        return ("identity readout",) if self.identity_readout else ()

    def build(
        self,
        core: "CoreConfig",
        *,
        num_classes: int,
        vocabulary: int | None = None,
        input_dim: int | None = None,
        input_scale: "Scale | None" = None,
        target_scale: "Scale | None" = None,
    ) -> "SequenceModel":
        """Make the model for one core and one task.

        Args:
            core: the memory.
            num_classes: number of answers.
            vocabulary: number of input tokens; give this or ``input_dim``.
            input_dim: width of a float input.
            input_scale: mean and deviation of raw inputs; the model standardises them.
            target_scale: mean and deviation of values that are answered; the model's answers are in their units.
        """
        from recollect.agents.sequence_model import SequenceModel

        sizes = {"num_classes": num_classes, "vocabulary": vocabulary, "input_dim": input_dim}
        return SequenceModel(self, core, **sizes, input_scale=input_scale, target_scale=target_scale)


@dataclass(frozen=True, kw_only=True)
class SequenceClassifierConfig:
    """One answer per row, around an encoder of whole rows."""

    embedding_dim: int = 64
    """Width of a token's embedding (or of the projected float input)."""
    embedding_std: float = 1.0
    """Standard deviation of initial embeddings and learned positions."""
    positions: Literal["learned", "sinusoid", "grid", "none"] = "learned"
    """Positions in the whole row, added to the embeddings. ``grid``: learned positions of a square grid of patches,
    interpolated for grids of another size."""
    hidden_dim: int = 128
    """Width of the head's hidden layer."""
    dropout: float = 0.0
    """Dropout rate of the embeddings."""
    length_groups: int = 1
    """Number of groups of rows of similar length that are encoded together, so that less padding is computed. Changes
    no number but those of dropout, and of a bottleneck that adds slots at chunks of padding (``empty_chunk``)."""

    def __post_init__(self) -> None:
        require_types(self)
        require_one_of(self, "positions")
        _require_positive(self, "embedding_dim", "hidden_dim", "embedding_std", "length_groups")
        _require_probability(self, "dropout")

    def build(
        self, encoder: "SequenceEncoderConfig", spec: "TaskSpec", *, restores: bool = False
    ) -> "SequenceClassifier":
        """Make the model for one encoder and one task.

        Args:
            encoder: encoder of whole rows.
            spec: the task's tokens (or input width), answers, steps, parts and scales.
            restores: add a head that restores masked tokens, for pretraining.
        """
        from recollect.agents.sequence_classifier import SIZES, SequenceClassifier

        sizes = {name: getattr(spec, name) for name in SIZES}
        scales = {"input_scale": spec.input_scale, "target_scale": spec.target_scale}
        return SequenceClassifier(self, encoder, restores=restores, **scales, **sizes)


@dataclass(frozen=True, kw_only=True)
class SiTConfig:
    """A self-supervised vision Transformer, around an encoder of whole rows."""

    embedding_dim: int = 64
    """Width of a patch's embedding."""
    embedding_std: float = 0.02
    """Standard deviation of initial positions and tokens."""
    contrast_dim: int = 512
    """Width of the vector in which views of one image are compared."""

    def __post_init__(self) -> None:
        require_types(self)
        _require_positive(self, "embedding_dim", "embedding_std", "contrast_dim")

    def build(self, encoder: "SequenceEncoderConfig", spec: "TaskSpec") -> "SiT":
        """Make the model for one encoder and the images of one task."""
        from recollect.agents.sit import SiT

        require(not encoder.reads_patches, "encoder", encoder, "choose one that reads embedded patches")
        return SiT(self, encoder, input_dim=spec.input_dim, length=spec.length)


@dataclass(frozen=True, kw_only=True)
class ActivityDetectorConfig:
    """Activities at every frame around a core, from frames or precomputed features."""

    backbone: Literal["patches", "image", "vivit"] = "patches"
    """Map from frames to tokens: patches (ours, small), image (a model of transformers) or vivit."""
    model: str = ""
    """Folder of a model, or its name in the Hugging Face Hub; for image and vivit."""
    frozen: bool = True
    """Keep the pretrained weights; for image and vivit."""
    size: int = 32
    """Side in pixels to which frames are resized; for patches."""
    patch: int = 4
    """Side of a patch in pixels; for patches."""
    width: int = 32
    """Width of a token that the core reads."""
    num_tokens: int = 16
    """Tokens per step for cores that read vectors; other cores have their own number."""
    vector_tokens: Literal["joined", "steps"] = "joined"
    """Input of a core that reads vectors: all tokens as one vector, or each token as a separate step."""

    def __post_init__(self) -> None:
        require_types(self)
        require_one_of(self, "backbone", "vector_tokens")
        _require_positive(self, "size", "patch", "width", "num_tokens")

    def build(
        self,
        core: "CoreConfig",
        *,
        class_names: tuple[str, ...],
        frame_shape: tuple[int, int, int] | None,
        feature_dim: int | None = None,
    ) -> "ActivityDetector":
        """Make the detector for one core and one task.

        Args:
            core: the memory.
            class_names: names of the activities.
            frame_shape: rows, columns and 3 of a frame; None where steps are features.
            feature_dim: width of features; None where steps are frames.
        """
        from recollect.agents.activity_detector import ActivityDetector

        return ActivityDetector(self, core, class_names=class_names, frame_shape=frame_shape, feature_dim=feature_dim)
