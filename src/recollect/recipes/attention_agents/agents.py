"""The attention agents of George 2021, as complete runs in any world that shows one image a step.

    mott                                     residual network -> core mott                                  3.1
    adaptive                                 residual network -> layer of 256 - a - 1 -> transformer-xl     3.2
    spatio-temporal-sequential, -one-shot    residual network -> core spatio-temporal                       3.3
    timesformer-divided, -joint              residual network, last stage of 16 -> core timesformer         3.4

The last column is the section of the thesis. Beside the image, all agents read the a logits of the policy that drew the
last action, and the clipped reward.
Policy and value are linear in the core's output. Pixels go in as they are, 0 to 255 (section 4.2.4).

To add an agent: a function from a world to its run, and one line in :data:`ATTENTION_AGENTS`.

Source: George (master's thesis, Freiburg 2021), Neural architecture impact on identifying temporally extended
reinforcement learning tasks: sections 3 and 4.2, appendix A. It names no optimiser; rate, costs and clipping are those
of the code behind its section 3.2 (Kumar's, of Parisotto et al. 2020).

Differs:

- One process plays ``batch_size`` rows in turn with the learner, where the thesis has 32 to 50 actors and a queue
  (as ``--schedule.mode asynchronous`` does); so batch sizes count rows that are played, not rollouts from a queue.
- No dropout. The code behind section 3.2 has 0.1, also while it acts; the thesis does not mention it.
- The learning rate falls as a cosine over the run, step by step.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from recollect.agents.config import ActorCriticConfig
from recollect.agents.encoder_config import EncoderConfig
from recollect.agents.spaces import is_image
from recollect.config import lookup
from recollect.cores.config import CoreConfig
from recollect.cores.mott import SpatialAttentionMemoryConfig
from recollect.cores.spatio_temporal.config import Query, SpatioTemporalAttentionConfig
from recollect.cores.timesformer.config import SpaceTime, TimeSformerConfig
from recollect.cores.transformer_xl.config import TransformerXLConfig
from recollect.lazy import gymnasium, torch
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training import EvaluationConfig, FitConfig, ImpalaConfig, LossConfig, OptimizerConfig, ReuseConfig

WIDTH = 256
"""Of what core and heads read."""
CHUNK, CHUNKS = 80, 3
"""Rows that a transformer learns from at once, and how many of them a rollout has."""
MEMORY = 100
"""Steps that a transformer remembers."""
EMBEDDING = 16
"""Width of a token of TimeSformer: of the last stage of its residual network."""
RESNET = "impala-resnet"

MakeAgentRun = Callable[[WorldConfig], ImpalaConfig]


def mott(world: WorldConfig, kind: str = RESNET) -> ImpalaConfig:
    """Return the agent of section 3.1: an LSTM chooses where to attend on the map of a ConvLSTM.

    Rollouts have 160 steps, and the learner continues from the actor's memory.

    Args:
        world: shows images.
        kind: of the image encoder.
    """
    space = image_of(world, "mott")
    rows, columns, channels = map_shape(space, kind)
    core = SpatialAttentionMemoryConfig(dim=WIDTH, grid=(rows, columns), channels=channels)
    return attention_run(world, core, attention_body(kind), batch_size=12, unroll=160, reuse=ReuseConfig())


def adaptive(world: WorldConfig) -> ImpalaConfig:
    """Return the agent of section 3.2: one layer of Transformer-XL.

    Rollouts have three chunks, and the learner begins each with an empty memory.
    """
    image_of(world, "adaptive")
    core = TransformerXLConfig(
        dim=WIDTH, num_layers=1, num_heads=4, hidden_dim=1024, memory_len=MEMORY, relu_outputs=True, activation="relu"
    )
    body = attention_body(RESNET, image_dim=WIDTH - told(world))
    return attention_run(world, core, body, batch_size=16, unroll=CHUNKS * CHUNK - 1, reuse=in_chunks(CHUNK))


def spatio_temporal(world: WorldConfig, query: Query) -> ImpalaConfig:
    """Return the agent of section 3.3: the attention of Mott et al. in front of a Transformer-XL.

    Args:
        world: shows images.
        query: sequential makes queries from the learner's own outputs, one-shot from those of the actor.
    """
    rows, columns, channels = map_shape(image_of(world, f"spatio-temporal-{query}"))
    core = SpatioTemporalAttentionConfig(
        dim=WIDTH, grid=(rows, columns), channels=channels, query=query, memory_len=MEMORY
    )
    body, unroll = attention_body(RESNET), CHUNKS * CHUNK - 1
    return attention_run(world, core, body, batch_size=12, unroll=unroll, reuse=in_chunks(CHUNK))


def timesformer(world: WorldConfig, attention: SpaceTime, kind: str = RESNET) -> ImpalaConfig:
    """Return the agent of section 3.4: TimeSformer, whose core appends logits and reward to its output.

    Args:
        world: shows images; for joint attention of 42 x 42, as in the thesis, because larger ones take long.
        attention: to space and time, divided or joint.
        kind: of the image encoder, which makes the tokens (sections 4.2.5 and 4.2.7).
    """
    rows, columns, _ = map_shape(image_of(world, f"timesformer-{attention}"), kind)
    chunk, batch_size = (CHUNK, 24) if attention == "divided" else (10, 4)
    core = TimeSformerConfig(
        dim=WIDTH,
        grid=(rows, columns),
        channels=EMBEDDING,
        token_dim=EMBEDDING,
        attention=attention,
        memory_len=MEMORY,
        time_rows=MEMORY + chunk,
    )
    body = attention_body(kind)
    body = replace(body, encoders=replace(body.encoders, channels=(16, 32, EMBEDDING)))
    unroll = CHUNKS * CHUNK - 1
    return attention_run(world, core, body, batch_size=batch_size, unroll=unroll, reuse=in_chunks(chunk))


ATTENTION_AGENTS: dict[str, MakeAgentRun] = {
    "mott": mott,
    "adaptive": adaptive,
    "spatio-temporal-sequential": partial(spatio_temporal, query="sequential"),
    "spatio-temporal-one-shot": partial(spatio_temporal, query="one-shot"),
    "timesformer-divided": partial(timesformer, attention="divided"),
    "timesformer-joint": partial(timesformer, attention="joint"),
}
"""Values of ``--agent``."""


def attention_agent(name: str, world: WorldConfig) -> ImpalaConfig:
    """Return the run of an agent in a world.

    Raises:
        ValueError: there is no such agent, or the world shows no image.
    """
    return lookup(ATTENTION_AGENTS, name, "agent")(world)


def attention_body(kind: str, image_dim: int | None = None) -> ActorCriticConfig:
    """Return the settings that surround the core in all of these agents: an image encoder and linear heads.

    Args:
        kind: kind of the image encoder.
        image_dim: width of a layer behind its map.
    """
    return ActorCriticConfig(
        encoders=EncoderConfig(kinds=(("observation", kind),), scale_images=False, image_dim=image_dim),
        width=None,
        previous_action="logits",
        clip_reward=1.0,
        norm=False,
    )


def attention_run(
    world: WorldConfig, core: CoreConfig, agent: ActorCriticConfig, *, batch_size: int, unroll: int, reuse: ReuseConfig
) -> ImpalaConfig:
    """Return a run with the settings that all of these agents share."""
    return ImpalaConfig(
        world=world,
        core=core,
        agent=agent,
        optimizer=OptimizerConfig(
            algorithm="rmsprop", learning_rate=4e-4, smoothing=0.99, epsilon=0.01, clip_norm=40.0, schedule="cosine"
        ),
        loss=LossConfig(discount=0.99, baseline_cost=0.5, entropy_cost=0.01, reward_clip=1.0, reuse=reuse),
        evaluation=EvaluationConfig(episodes=16, greedy=False, time_limit=3600.0),
        batch_size=batch_size,
        unroll=unroll,
        fit=FitConfig(steps=2600, report_every=10, evaluate_every=100, checkpoint_every=50),
    )


def in_chunks(chunk: int, memory: Literal["stored", "empty"] = "empty") -> ReuseConfig:
    """Return settings with one optimiser step for every chunk of a rollout."""
    return ReuseConfig(chunk=chunk, update_per="chunk", learner_memory=memory)


def with_layers(config: ImpalaConfig, number: int) -> ImpalaConfig:
    """Return the same run with another number of layers in its core."""
    more: dict[str, Any] = {"num_layers": number}
    return replace(config, core=replace(config.core, **more))


def with_tokens(config: ImpalaConfig, width: int) -> ImpalaConfig:
    """Return a run of TimeSformer with another width of its tokens and of the encoder's last stage."""
    tokens: dict[str, Any] = {"channels": width, "token_dim": width}
    encoders = replace(config.agent.encoders, channels=(16, 32, width))
    return replace(config, core=replace(config.core, **tokens), agent=replace(config.agent, encoders=encoders))


def with_patches(config: ImpalaConfig, side: int) -> ImpalaConfig:
    """Return a run of divided TimeSformer whose tokens are patches of the image, without an encoder."""
    return timesformer(config.world, "divided", f"patches-{side}")


def told(world: WorldConfig) -> int:
    """Return the width of the agents' inputs beside the image: logits and reward."""
    from recollect.agents.policies import policy_for

    return policy_for(world.spec.action_space).num_parameters + 1


def image_of(world: WorldConfig, agent: str) -> "gymnasium.spaces.Box":
    """Return the space of the images that a world shows.

    Raises:
        ValueError: it shows something else.
    """
    space = world.spec.observation_space
    if isinstance(space, gymnasium.spaces.Box) and is_image(space):
        return space
    raise ValueError(
        f"--agent {agent}: it looks at one image a step, and {world.title} shows {space}: take a world of images "
        "(catch, track, key-door, gym:ALE/Pong-v5), or a core (--core) instead of an agent"
    )


def map_shape(space: "gymnasium.spaces.Box", kind: str = RESNET) -> tuple[int, int, int]:
    """Return the rows, columns and channels of the map that an image encoder makes of such images."""
    from recollect.agents.image_encoders import IMAGE_ENCODERS

    with torch.device("meta"):  # sizes alone
        encoder = IMAGE_ENCODERS[kind](space)
    return (*encoder.map_sides, encoder.channels[-1])
