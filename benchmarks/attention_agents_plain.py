"""What the attention agents gain over the same written the plain way, in Pong.

    python benchmarks/attention_agents_plain.py [--side 84] [--rounds 3]

The plain form of ``adaptive`` has the same weights and numbers: at every call attention is written out, over a memory
of layer inputs whose keys and values are computed anew, with the shift of relative positions, as in Transformer-XL's
code; images go through the layers of the network in the layout that torch gives them. Training is the same in both:
rollouts, chunks and losses. ``timesformer-divided`` acts with cached frames, or is given all frames of its window anew.

Processor time on one thread, in turns, the fastest round of each.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

import source_tree  # noqa: F401
from attention_agents import MEMORY, ROWS, SECONDS, inputs, timed
from recollect.agents.actor_critic import ActorCritic
from recollect.agents.contract import ActorInputs
from recollect.agents.image_encoders import IMAGE_ENCODERS, ImpalaResNet
from recollect.benchmark.machine import describe
from recollect.cores.stream import Stream
from recollect.cores.transformer_xl.core import (
    TransformerXL,
    TransformerXLConfig,
    TransformerXLLayer,
    TransformerXLState,
)
from recollect.layers.positions import sinusoid
from recollect.ops.allocation import keep_freed_memory
from recollect.recipes.attention_agents import attention_agent
from recollect.recipes.attention_agents.study import game
from recollect.training import ImpalaConfig

AIMS = {"adaptive, acting": 1.5, "adaptive, training": 1.5, "timesformer-divided, acting": 4.0}


class PlainResNet(ImpalaResNet):
    """The network layer by layer, on whole batches."""

    def forward(self, observation: Tensor) -> Tensor:
        """``[n, c, y, x] -> [n, dim]``."""
        maps = self.convolve(self.first(observation.float() * self.scale))
        return self.project(maps.permute(0, 2, 3, 1).flatten(1))


class PlainTransformerXL(TransformerXL):
    """Ungated Transformer-XL with relative positions, written out."""

    stream_type = Stream

    def unroll(self, inputs: Tensor, state: TransformerXLState, is_first: Tensor) -> tuple[Tensor, TransformerXLState]:
        """All steps at once, with keys and values of memory and inputs computed anew."""
        w, t = self.config.memory_len, inputs.shape[1]
        visible, count = self.mask(state.count, is_first)
        phi = sinusoid(torch.arange(w + t - 1, -1, -1.0), self.config.dim, "concatenated")
        x, kept = self.project(inputs), []
        for layer, memory in zip(self.layers, state.window.unbind(1), strict=True):
            both = torch.cat((memory, x), 1)
            kept.append(both[:, -w:])
            x = self.layer(layer, x, both, visible, phi)
        return self.norm(x), TransformerXLState(torch.stack(kept, 1), count)

    def mask(self, count: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """What each step sees of memory and call, bool ``[b, t, w + t]``, and the count behind the call."""
        w, t = self.config.memory_len, is_first.shape[1]
        episode = is_first.cumsum(1)
        held = torch.arange(w) >= w - count[:, None]
        of_memory = held[:, None] & (episode == 0)[..., None]
        of_call = episode[:, :, None] == episode[:, None]
        age = torch.arange(w, w + t)[:, None] - torch.arange(w + t)
        seen = torch.cat((of_memory, of_call), 2) & (age >= 0) & (age <= w)
        before = torch.cat((torch.where(held, 0, -1), episode), 1)[:, -w:]
        return seen, (before == episode[:, -1:]).sum(1)

    def layer(self, layer: TransformerXLLayer, x: Tensor, both: Tensor, visible: Tensor, phi: Tensor) -> Tensor:
        """One layer: ``[b, t, d]`` with ``[b, w + t, d]``."""
        assert layer.relative is not None and self.u is not None and self.v is not None
        heads, t, length = layer.num_heads, x.shape[1], both.shape[1]

        def split(part: Tensor) -> Tensor:
            return part.unflatten(-1, (heads, -1)).transpose(-3, -2)

        q, k, v = F.linear(layer.norm_attention(both), layer.qkv.weight).chunk(3, -1)
        q, r = q[:, -t:], split(F.linear(phi, layer.relative.weight))
        content = split(q + self.u) @ split(k).transpose(-1, -2)
        place = split(q + self.v) @ r.transpose(-1, -2)  # by offset; shifted to stand by key
        place = F.pad(place, (1, 0)).reshape(*place.shape[:2], length + 1, t)[:, :, 1:].view_as(place)
        scores = (content + place) / (x.shape[-1] // heads) ** 0.5
        weights = scores.masked_fill(~visible[:, None], -torch.inf).softmax(-1)
        x = x + F.relu(layer.out((weights @ split(v)).transpose(1, 2).flatten(2)))
        return x + F.relu(layer.feed_forward(layer.norm_forward(x)))


@dataclass(frozen=True, kw_only=True)
class PlainConfig(TransformerXLConfig):
    """Settings of :class:`PlainTransformerXL`."""

    def build(self, input_dim: int) -> PlainTransformerXL:
        """Make the core."""
        return PlainTransformerXL(self, input_dim)


@contextmanager
def plain_images() -> Iterator[None]:
    """Within, agents are built with the plain network."""
    IMAGE_ENCODERS["impala-resnet"] = PlainResNet
    try:
        yield
    finally:
        IMAGE_ENCODERS["impala-resnet"] = ImpalaResNet


def plain(config: ImpalaConfig) -> ImpalaConfig:
    """The same run around the plain core."""
    assert isinstance(config.core, TransformerXLConfig)
    return replace(config, core=PlainConfig(**vars(config.core)))


class Stepping:
    """An agent with a full memory, one row."""

    def __init__(self, agent: ActorCritic, config: ImpalaConfig) -> None:
        self.stream, spec = agent.stream(1), config.world.spec
        torch.manual_seed(1)
        for _ in range(MEMORY + 1):
            self.given = inputs(agent, spec, 1)
            self.last = self.stream.step(self.given).policy

    def __call__(self) -> object:
        """One step."""
        return self.stream.step(self.given)


class Again:
    """An agent that is given its whole window at every step."""

    def __init__(self, agent: ActorCritic, config: ImpalaConfig) -> None:
        torch.manual_seed(1)
        steps = [inputs(agent, config.world.spec, 1) for _ in range(MEMORY + 1)]
        self.agent, self.given = agent, ActorInputs(*(torch.stack(part, 1) for part in zip(*steps, strict=True)))
        self.is_first = torch.zeros(1, MEMORY + 1, dtype=torch.bool)
        self.last = self().policy[:, -1]

    @torch.no_grad()
    def __call__(self) -> Any:
        """One step."""
        return self.agent(self.given, self.agent.initial_state(1), self.is_first)[0]


def measure(side: int, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of a step by what is done, ours and plain.

    Raises:
        AssertionError: the two forms do not say the same.
    """
    world = game("Pong", side=side)
    ours, frames = (replace(attention_agent(name, world), batch_size=ROWS) for name in
                    ("adaptive", "timesformer-divided"))  # fmt: skip
    learners, actors = [ours.build()], [ours.build_agent()]
    with plain_images():
        learners.append(plain(ours).build())
        actors.append(plain(ours).build_agent())
    # Actors of their own: a stream keeps to the weights it was made with, and learners change theirs.
    for agent in (learners[1].agent, *actors):
        agent.load_state_dict(learners[0].agent.state_dict())
    cached = frames.build_agent()
    acting = [Stepping(agent.eval(), ours) for agent in actors]
    both = [Stepping(cached, frames), Again(cached, frames)]
    for pair in (acting, both):
        torch.testing.assert_close(pair[0].last, pair[1].last, rtol=1e-3, atol=1e-4)
    steps = ours.batch_size * ours.unroll
    calls = {
        "adaptive, acting": (acting, SECONDS, 1),
        "adaptive, training": ([learner.step for learner in learners], 0.0, steps),
        "timesformer-divided, acting": (both, SECONDS, 1),
    }
    best: dict[str, dict[str, float]] = {name: {} for name in calls}
    for _ in range(rounds):
        for name, (forms, least, parts) in calls.items():
            for form, call in zip(("ours", "plain"), forms, strict=True):
                seconds, number = timed(call, least)  # type: ignore[arg-type]
                best[name][form] = min(best[name].get(form, float("inf")), seconds / number / parts)
    return best


def main() -> None:
    """Measure, print the table, save the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=84, help="of a frame: 84, 42 or 21")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", default="benchmarks/results", help="folder of attention-plain.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_freed_memory()
    rows = [
        {"what": name, "side": options.side, **found, "ratio": found["plain"] / found["ours"], "aim": AIMS[name]}
        for name, found in measure(options.side, options.rounds).items()
    ]
    table = Table("step", "plain, ms", "ours, ms", "ratio", "aim", title=f"Pong, frames of {options.side}")
    for row in rows:
        times = (f"{1e3 * row[form]:.2f}" for form in ("plain", "ours"))
        table.add_row(row["what"], *times, f"{row['ratio']:.2f}", f"{row['aim']:g}")
    Console().print(table)
    found = {"environment": describe(), "rows": rows}
    Path(options.output, "attention-plain.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
