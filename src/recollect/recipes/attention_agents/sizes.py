"""Parameter counts of the agents of George 2021, as reported there and as counted here.

The thesis gives them in millions (tables 4.1 to 4.13); the numbers here are what its descriptions and the code behind
them add up to, and agree with all of its digits. To add an agent's: lines in :data:`SIZES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from recollect.recipes.attention_agents.agents import attention_agent, with_layers, with_patches, with_tokens
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training import ImpalaConfig

UNUSED_NORMS = 3 * 2 * 256
"""Of a layer of Transformer-XL: three LayerNorms that the code behind the thesis makes and never uses."""


def _unchanged(config: ImpalaConfig) -> ImpalaConfig:
    return config


@dataclass(frozen=True, kw_only=True)
class Size:
    """Parameters of one agent for one game."""

    agent: str
    """Its name."""
    published: int
    """Number of parameters in the thesis."""
    game: str = "Pong"
    """Whose actions it has."""
    side: int = 84
    """Pixels along one side of its frames."""
    unused: int = 0
    """Number of those that no computation uses; they do not exist here."""
    changed: str = ""
    """Differences from the agent that ``--agent`` builds."""
    change: Callable[[ImpalaConfig], ImpalaConfig] = _unchanged
    """The change."""

    def count(self, world: WorldConfig) -> int:
        """Return the number of parameters here.

        Args:
            world: a world with the actions of the game, and frames of ``side``.
        """
        agent = self.change(attention_agent(self.agent, world)).build_agent()
        return sum(parameter.numel() for parameter in agent.parameters())


def _divided(changed: str, published: int, change: Callable[[ImpalaConfig], ImpalaConfig]) -> Size:
    return Size(agent="timesformer-divided", published=published, changed=changed, change=change)


SIZES = (
    Size(agent="mott", published=2_176_663),
    Size(agent="mott", game="Enduro", published=2_178_970),
    Size(agent="mott", game="Breakout", published=2_175_125),
    Size(agent="adaptive", published=1_920_240, unused=UNUSED_NORMS),
    *(
        Size(
            agent="adaptive",
            published=published,
            unused=layers * UNUSED_NORMS,
            changed=f"{layers} layers",
            change=partial(with_layers, number=layers),
        )
        for layers, published in ((2, 2_776_048), (3, 3_631_856))
    ),
    Size(agent="adaptive", game="Enduro", published=1_909_392, unused=UNUSED_NORMS),
    Size(agent="adaptive", game="Breakout", published=1_927_472, unused=UNUSED_NORMS),
    Size(agent="spatio-temporal-sequential", published=1_953_431, unused=UNUSED_NORMS),
    Size(agent="spatio-temporal-one-shot", published=1_953_431, unused=UNUSED_NORMS),
    Size(agent="timesformer-divided", published=558_944),
    *(
        _divided(f"{layers} layers", published, partial(with_layers, number=layers))
        for layers, published in ((2, 563_520), (3, 568_096), (4, 572_672))
    ),
    *(
        _divided(f"tokens of {width}", published, partial(with_tokens, width=width))
        for width, published in ((8, 302_856), (32, 1_091_472), (64, 2_237_936))
    ),
    *(
        _divided(f"patches of {side}", published, partial(with_patches, side=side))
        for side, published in ((7, 588_688), (14, 166_096), (28, 95_728))
    ),
    Size(agent="timesformer-divided", published=110_944, side=21, changed="frames of 21"),
    Size(agent="timesformer-joint", published=556_480),
    Size(agent="timesformer-joint", published=216_480, side=42, changed="frames of 42"),
)
"""All that can be derived. Divided attention has 218 944 in frames of 42, where the thesis says 0.221 million."""
