"""One-Shot StreetLearn: find as many goals as you can in a neighbourhood you have never seen.

An episode takes a neighbourhood of a city (``city_graphs.py``): about ``num_junctions`` junctions and the
streets between them. The agent is on a directed edge, that is at a place and facing a street; it sees the edge it is
on and the edge it shall reach, and walks: 0 forward, 1 left, 2 right. There is nothing to tell it what lies behind a
street except having been there in this episode. So the first goals cost exploration, and the later ones memory and
planning.

- ``rule="paper"``: a move that ends on the goal gives 1. With it the agent finds itself on a new edge with a new goal.
- ``rule="collect"``: a fourth action collects; on the goal it gives 1 and a new goal, and the agent stays where it is.
  Elsewhere it does nothing. This is what the public code does.

Both draw edges and goals uniformly, never the same edge for both. An episode lasts ``steps`` actions; its score is
the number of goals.

An observation names edges by symbols, 60 of them, dealt anew in every episode (neighbourhoods have at most 60 edges):

- ``one_hot``: 120 numbers, the symbol of the present edge and the symbol of the goal.
- ``symbols``: the same two as integers 1 to 60, and the edge before the last action (0 at first): a grid of one row. An
  encoder of grids has one table for all, so that an edge looks the same when it is the goal as when one is on it (with
  ``one_hot`` that has to be learned symbol by symbol), and an observation says what the last action led to.
- ``rendered``: an image of 16 x 32 pixels, on the left the view from the present edge, on the right that from the
  goal. A view is a mosaic of 4 x 4 stones of 4 x 4 pixels; every symbol has its own 16 random colours, the same ones
  for ever. It stands in for the photographs of the papers: pixels that must be told apart, and that say nothing about
  the map.

Chance is the score of uniformly random actions, and the oracle that of shortest ways on the known map. Both are exact
expectations over all neighbourhoods of the pool, starts and goals, by dynamic programming over the steps that are
left (:func:`expected_goals`). Shortest ways are best: to reach a goal earlier changes nothing about the goals that
follow, and leaves more steps for them. Symbols are dealt at random, so without memory they tell nothing but whether
the agent is on its goal. Even so, a policy without memory can be better than chance: with the paper's rule a fixed
mixture of 60 % forward and 40 % left finds 5.3 goals where chance finds 3.8 and the oracle 57.0.

Paper:    Lampinen et al. 2021, section 3.4 and appendix B.4.
Source:   Ritter et al., "Rapid Task-Solving in Novel Environments" (2021), section 4, and its public code.
Differs:  cities are made up unless ``graphs`` names published ones; edges are drawn uniformly (the public code draws
          the first one by place, then direction); the end of an episode counts as a time limit, not as an end of
          rewards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from recollect.lazy import gymnasium, np, torch
from recollect.tasks.arrangements import arrangement_bits
from recollect.tasks.worlds.contract import Advance, TensorWorld, Truth, WorldConfig, WorldSpec
from recollect.tasks.worlds.street_learn.city_graphs import (
    MAX_EDGES,
    Neighbourhoods,
    cut_neighbourhoods,
    grow_city,
    read_gexf,
)
from recollect.tasks.worlds.street_learn.explorer import explore, known_way, note
from recollect.tasks.worlds.street_learn.replay import stretch, walk_again

TRAINING_CITIES = tuple(range(12))
"""Seeds of the cities to train in; as many as the paper trained in."""
HELD_OUT_CITIES = (12,)
"""Seed of the city to be tested in."""
MOVES = ("forward", "left", "right")
COLLECT = 3
STONES, PIXELS = 4, 4
"""Stones along each side of a view, and pixels along each side of a stone."""

Rule = Literal["paper", "collect"]

BEST_MIXTURE: dict[Rule, tuple[float, ...]] = {"paper": (0.6, 0.4, 0.0), "collect": (0.3, 0.2, 0.0, 0.5)}
"""Probabilities of the actions that find most goals where nothing is remembered, to the tenth."""


@dataclass(frozen=True, kw_only=True)
class StreetLearnConfig(WorldConfig):
    """Find goal after goal in a neighbourhood seen for the first time."""

    rule: Rule = "paper"
    """A goal is reached by walking there and both ends of the next way are drawn, or it is collected with a fourth
    action and the next way starts there."""
    observation: Literal["one_hot", "symbols", "rendered"] = "one_hot"
    """Symbols, one-hot or as integers, or small images."""
    num_junctions: int = 5
    """Junctions of a neighbourhood (the last street walked to find it may bring more)."""
    steps: int = 200
    """Actions of an episode."""
    cities: tuple[int, ...] = TRAINING_CITIES
    """Seeds of made-up cities. Test in HELD_OUT_CITIES."""
    graphs: tuple[str, ...] = ()
    """Paths of published city graphs (.gexf), to be used instead of made-up cities."""
    pool: int = 512
    """Most neighbourhoods; they are drawn from the junctions of all cities."""

    def __post_init__(self) -> None:
        if self.rule not in ("paper", "collect"):
            raise ValueError(f"rule={self.rule!r}: choose 'paper' or 'collect'")
        if self.observation not in ("one_hot", "symbols", "rendered"):
            raise ValueError(f"observation={self.observation!r}: choose 'one_hot', 'symbols' or 'rendered'")
        for field in ("num_junctions", "steps", "pool"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field}={getattr(self, field)}: give at least 1")
        if not self.cities and not self.graphs:
            raise ValueError("cities=(): give the seed of at least one city, or name files in graphs")
        if self.cities and min(self.cities) < 0:
            raise ValueError(f"cities={self.cities}: give seeds from 0 on")

    @property
    def neighbourhoods(self) -> Neighbourhoods:
        """The pool that episodes draw from, on the CPU.

        Raises:
            ValueError: ``graphs`` names what is no city graph, or no neighbourhood has ``num_junctions`` junctions.
        """
        return _pool(() if self.graphs else self.cities, self.graphs, self.num_junctions, self.pool)

    @property
    def spec(self) -> WorldSpec:
        """Two symbols or two views side by side; what was seen first may be needed last."""
        chance, oracle = _levels(self)
        edges = self.neighbourhoods.num_edges
        side = STONES * PIXELS
        shown = {
            "one_hot": gymnasium.spaces.Box(0.0, 1.0, (2 * MAX_EDGES,), np.float32),
            "symbols": gymnasium.spaces.Box(0, MAX_EDGES, (1, 3), np.int64),
            "rendered": gymnasium.spaces.Box(0, 255, (side, 2 * side, 3), np.uint8),
        }
        return WorldSpec(
            observation_space=shown[self.observation],
            action_space=gymnasium.spaces.Discrete(4 if self.rule == "collect" else 3),
            max_steps=self.steps,
            memory_span=self.steps - 1,
            chance=chance,
            oracle=oracle,
            events=("goal reached", "new goal"),
            action_names=(*MOVES, *(["collect"] if self.rule == "collect" else [])),
            bits=math.log2(len(edges)) + arrangement_bits(MAX_EDGES, int(edges.max())),
            num_labels=MAX_EDGES + 1,
            labels_per_step=2 * len(MOVES) + 1,
            policies=("best mixture", "replay", "explorer"),
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> StreetLearn:
        """The world, with ``batch_size`` rows."""
        return StreetLearn(self, batch_size, seed=seed, device=device)


class StreetLearnState(NamedTuple):
    """Where the walkers of b rows are."""

    neighbourhood: torch.Tensor
    """long ``[b]``: row of the pool."""
    symbols: torch.Tensor
    """long ``[b, 60]``: the symbol of every directed edge."""
    here: torch.Tensor
    """long ``[b]``: the present edge."""
    goal: torch.Tensor
    """long ``[b]``: the edge to reach."""
    before: torch.Tensor
    """long ``[b]``: the edge before the last action; -1 at first."""
    reached: torch.Tensor
    """bool ``[b]``: the last action reached a goal; ``here`` and ``goal`` show the next task."""
    collected: torch.Tensor
    """float32 ``[b]``: goals so far."""
    walked: torch.Tensor
    """int32 ``[b, steps + 1]``: the edges it was on, step by step; -1 where it has not been yet."""
    task: torch.Tensor
    """int32 ``[b, steps + 1]``: goals reached until then, a change of which means that no move led there."""
    tried: torch.Tensor
    """bool ``[b, e, 3]``: moves whose end the walker knows, see ``explorer.py``."""


class StreetLearn(TensorWorld[StreetLearnState]):
    """Walks in neighbourhoods, as tables.

    ``truth``: the event "goal reached" is a step whose reward is 1 (a new goal is to be seen at once), "new goal" is
    the first step of an episode. The interval is the step that shows what to do again on the present edge: behind the
    one from which the walker came from here to the goal on the shortest way it has walked; where it never has, behind
    the first one here, which shows what was tried. None where it has not been here, nor at the last observation, where
    nothing is to be decided. The labels are what a walker who remembers everything knows: the symbols, as observations
    name them, of the edges that the three moves from here lead to; the moves of the shortest known way to the goal; and
    the symbols of edges from which the three moves lead to the goal (one of them each, forward may have several). All
    are 0 where it knows none, the way also where it stands there, by the rule "collect".
    """

    def __init__(
        self, config: StreetLearnConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.config = config
        self.map = Neighbourhoods(*(table.to(self.device) for table in config.neighbourhoods))
        self.views = rendered_views().to(self.device) if config.observation == "rendered" else None

    def begin(self, batch_size: int) -> StreetLearnState:
        """A neighbourhood, its symbols, a start and a goal."""
        neighbourhood = torch.randint(
            len(self.map.num_edges), (batch_size,), generator=self.generator, device=self.device
        )
        symbols = torch.rand(batch_size, MAX_EDGES, generator=self.generator, device=self.device).argsort(1)
        here = self._draw(self.map.num_edges[neighbourhood])
        walked = torch.full((batch_size, self.config.steps + 1), -1, dtype=torch.int32, device=self.device)
        walked[:, 0] = here.int()
        return StreetLearnState(
            neighbourhood,
            symbols,
            here,
            self._draw_goal(neighbourhood, here),
            torch.full_like(here, -1),
            torch.zeros(batch_size, dtype=torch.bool, device=self.device),
            torch.zeros(batch_size, device=self.device),
            walked,
            torch.zeros_like(walked),
            torch.zeros(batch_size, *self.map.move.shape[1:], dtype=torch.bool, device=self.device),
        )

    def advance(self, state: StreetLearnState, actions: torch.Tensor) -> Advance:
        """Move, and draw the next task where a goal is reached."""
        n = state.neighbourhood
        moved = self.map.move[n, state.here, actions.clamp(max=COLLECT - 1)]
        # Drawn in all rows, so that what a row draws does not depend on how the others fare.
        if self.config.rule == "paper":
            reached = moved == state.goal
            here = torch.where(reached, self._draw(self.map.num_edges[n]), moved)
        else:
            reached = (actions == COLLECT) & (state.here == state.goal)
            here = torch.where(actions == COLLECT, state.here, moved)
        goal = torch.where(reached, self._draw_goal(n, here), state.goal)
        now = (self.clock[:, None] + 1).clamp(max=self.config.steps)
        walked = state.walked.scatter(1, now, here[:, None].int())
        collected = state.collected + reached
        task = state.task.scatter(1, now, collected[:, None].int())
        tried = note(state.tried, state.here, actions, moved)
        moved_on = StreetLearnState(n, state.symbols, here, goal, state.here, reached, collected, walked, task, tried)
        return Advance(moved_on, reached.float(), torch.zeros_like(reached), collected)

    def observe(self, state: StreetLearnState) -> torch.Tensor:
        """Symbols or views of the present edge and of the goal."""
        edges = torch.stack((state.here, state.goal), 1)
        symbols = state.symbols.gather(1, edges)  # b 2
        if self.config.observation == "symbols":
            before = state.symbols.gather(1, state.before.clamp(min=0)[:, None])
            before = torch.where(state.before[:, None] < 0, 0, before + 1)
            return torch.cat((symbols + 1, before), 1)[:, None]
        if self.views is not None:
            here, goal = self.views[symbols].unbind(1)
            return torch.cat((here, goal), 2)  # b y x c
        return (
            torch.zeros(len(symbols), 2, MAX_EDGES, device=self.device).scatter_(2, symbols[..., None], 1.0).flatten(1)
        )

    def plan(self, state: StreetLearnState) -> torch.Tensor:
        """The first move of a shortest way to the goal; on the goal, collect."""
        best = self.map.best[state.neighbourhood, state.here, state.goal].long()
        return torch.where(state.here == state.goal, COLLECT, best)

    def expert(self, name: str) -> torch.Tensor | None:
        """A move of the oracle, ``explorer`` (explorer.py), ``replay`` (replay.py) or ``best mixture``.

        Where ``replay`` has nothing to say, its move is drawn from the best mixture of moves.
        """
        rule = self.config.rule
        if name == "explorer":
            state = self._present()
            walk = explore(state.tried, self.map.move[state.neighbourhood], state.here, state.goal)
            return torch.where((state.here == state.goal) & (rule == "collect"), COLLECT, walk)
        if name == "replay":
            state = self._present()
            rows = torch.arange(self.batch_size, device=self.device)
            move = self.map.move[state.neighbourhood, state.here]
            walk, any_way = walk_again(
                *self._stretch(state, self._been_here(state)), state.walked, move, state.tried[rows, state.here]
            )
            walk = torch.where(any_way, walk, self._mixed("paper"))
            return torch.where((state.here == state.goal) & (rule == "collect"), COLLECT, walk)
        if name == "best mixture":
            return self._mixed(rule)
        return super().expert(name)

    def look(self, state: StreetLearnState) -> Truth:
        """Events, the step that shows what to do again, and where moves lead."""
        event = torch.where(state.reached, 0, torch.where(self.clock == 0, 1, -1))
        here = self._been_here(state)
        best, known = self._stretch(state, here)
        shows = torch.where(known, best, here.long().argmax(1)) + 1
        depends = here.any(1) & ~self.over
        return Truth(
            event,
            torch.where(depends, shows, -1),
            torch.where(depends, shows + 1, -1),
            torch.where(self.over[:, None], -1, self._knows(state)),
        )

    def _mixed(self, rule: Rule) -> torch.Tensor:
        mixture = torch.tensor(BEST_MIXTURE[rule], device=self.device)
        return torch.multinomial(mixture, self.batch_size, replacement=True, generator=self.generator)

    def _been_here(self, state: StreetLearnState) -> torch.Tensor:
        """Past steps on the present edge, bool ``[b, steps + 1]``."""
        past = torch.arange(state.walked.shape[1], device=self.device) < self.clock[:, None]
        return (state.walked == state.here[:, None]) & past

    def _stretch(self, state: StreetLearnState, visits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return stretch(state.walked, state.task, visits, self.clock, state.goal)

    def _knows(self, state: StreetLearnState) -> torch.Tensor:
        """Where the moves from here lead, how far the goal is, and from where the moves lead there, ``[b, 7]``."""
        move, tried = self.map.move[state.neighbourhood], state.tried
        rows = torch.arange(len(move), device=move.device)
        there = state.symbols.gather(1, move[rows, state.here]) + 1
        led = torch.where(tried[rows, state.here], there, 0)
        way = known_way(tried, move, state.goal)[rows, state.here]
        way = torch.where(way <= MAX_EDGES, way, 0).long()[:, None]
        leads = tried & (move == state.goal[:, None, None])  # b e 3
        back = state.symbols.gather(1, leads.byte().argmax(1)) + 1
        return torch.cat((led, way, torch.where(leads.any(1), back, 0)), 1)

    def _draw(self, number: torch.Tensor) -> torch.Tensor:
        drawn = torch.randint(1 << 40, number.shape, generator=self.generator, device=self.device)
        return drawn % number  # uniform to within 1e-10

    def _draw_goal(self, neighbourhood: torch.Tensor, here: torch.Tensor) -> torch.Tensor:
        other = self._draw(self.map.num_edges[neighbourhood] - 1)
        return other + (other >= here)


def rendered_views() -> torch.Tensor:
    """The view of every symbol, uint8 ``[60, y, x, c]``: mosaics of random colours, no two alike."""
    stones = np.random.default_rng(MAX_EDGES).integers(0, 256, (MAX_EDGES, STONES, STONES, 3), dtype=np.uint8)
    return torch.from_numpy(stones.repeat(PIXELS, 1).repeat(PIXELS, 2))


def expected_goals(pool: Neighbourhoods, rule: Rule, steps: int, policy: tuple[float, ...] | None = None) -> float:
    """Expected score of an episode, exactly.

    With V_k(s, g) the goals still to come when k steps are left, the walker on edge s and the goal g, s' = move(s, a),

        paper      V_k(s, g) = E_a[ 1 + mean_{s'' != g''} V_{k-1}(s'', g'')  where s' = g,  else V_{k-1}(s', g) ]
        collect    V_k(s, g) = E_a[ V_{k-1}(s', g) ]  over the moves; on collect
                               1 + mean_{g'' != s} V_{k-1}(s, g'')  where s = g,  else V_{k-1}(s, g)

    and the score is the mean of V_steps over neighbourhoods and over starts s != g.

    Args:
        pool: the neighbourhoods, all equally likely.
        rule: see :class:`StreetLearnConfig`.
        steps: actions of an episode.
        policy: probability of every action, the same everywhere; None walks the shortest ways.
    """
    p, e = pool.place.shape
    real = torch.arange(e) < pool.num_edges[:, None]
    fresh = real[:, :, None] & real[:, None, :] & ~torch.eye(e, dtype=torch.bool)
    by_goal = fresh / fresh.sum(2, keepdim=True).clamp(min=1)  # of a new goal, from each start
    by_task = fresh / fresh.sum((1, 2), keepdim=True)  # of a new start and goal
    walked = _walker(pool, policy)

    value = torch.zeros(p, e, e)
    for _ in range(steps):
        again = (value * by_task).sum((1, 2))[:, None] if rule == "paper" else (value * by_goal).sum(2)
        rewarded = value.clone()
        rewarded.diagonal(dim1=1, dim2=2).copy_((1 + again).expand(p, e))
        if rule == "paper":
            value = walked(rewarded)
        elif policy is None:
            value = walked(value)
            value.diagonal(dim1=1, dim2=2).copy_(1 + again)
        else:
            value = walked(value) + policy[COLLECT] * rewarded
    return float((value * by_task).sum((1, 2)).double().mean())


def _walker(pool: Neighbourhoods, policy: tuple[float, ...] | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """From V(s, g) to the sum over moves a of probability(a) V(move(s, a), g)."""
    p, e = pool.place.shape
    if policy is None:
        after = pool.move.gather(2, pool.best.long())  # p s g
        return lambda value: value.gather(1, after)
    share = torch.tensor(policy[:COLLECT]).expand(p, e, COLLECT)
    walk = torch.zeros(p, e, e).scatter_add_(2, pool.move, share)
    return lambda value: walk @ value


@lru_cache(maxsize=8)
def _pool(cities: tuple[int, ...], graphs: tuple[str, ...], num_junctions: int, limit: int) -> Neighbourhoods:
    maps = [read_gexf(path) for path in graphs] or [grow_city(seed) for seed in cities]
    return cut_neighbourhoods(maps, num_junctions, limit)


@lru_cache(maxsize=32)
def _levels(config: StreetLearnConfig) -> tuple[float, float]:
    """Chance and oracle."""
    actions = 4 if config.rule == "collect" else 3
    pool = config.neighbourhoods
    chance = expected_goals(pool, config.rule, config.steps, (1 / actions,) * actions)
    return chance, expected_goals(pool, config.rule, config.steps)
