"""One-Shot StreetLearn: reach as many goals as possible in an unknown neighbourhood.

An episode uses one neighbourhood of a city (``city_graphs.py``): about ``num_junctions`` junctions and the streets
between them. The agent is on a directed edge, that is, at a place and facing a street. It observes the present edge and
the goal edge, and moves: 0 forward, 1 left, 2 right. Where a street leads can only be learned by following it in this
episode. So the first goals take exploration, and later ones memory and planning.

- ``rule="paper"``: a move that ends on the goal gives reward 1, and a new edge and a new goal are drawn.
- ``rule="collect"``: a fourth action collects. On the goal it gives reward 1 and a new goal, and the agent stays;
  elsewhere it has no effect. This is the rule of the public code.

Edges and goals are drawn uniformly, and always differ. An episode has ``steps`` actions; its score is the number of
goals reached.

An observation names edges by 60 symbols, which are assigned at random in every episode:

- ``one_hot``: 120 numbers, the symbols of the present edge and of the goal.
- ``symbols``: both as integers 1 to 60, and the edge before the last action (0 at first): a grid of one row. A grid
  encoder has one table for all entries, so that an edge has the same embedding as present edge and as goal (with
  ``one_hot`` this must be learned symbol by symbol), and an observation shows the result of the last action.
- ``rendered``: an image of 16 x 32 pixels, the view of the present edge on the left and that of the goal on the right.
  A view is a mosaic of 4 x 4 squares of 4 x 4 pixels; every symbol has 16 fixed random colours. It replaces the
  photographs of the papers: pixels that must be told apart and do not reveal the map.

Chance is the score of uniformly random actions, and the oracle that of shortest paths on the known map. Both are exact
expectations over all neighbourhoods, starts and goals, by dynamic programming over the remaining steps
(:func:`expected_goals`). Shortest paths are optimal: reaching a goal earlier does not change later goals, and leaves
more steps for them. Symbols are random, so without memory they only show whether the agent is on its goal. A policy
without memory can still exceed chance: with the paper's rule a fixed mixture of 60 % forward and 40 % left reaches 5.3
goals, where chance reaches 3.8 and the oracle 57.0.

Paper: Lampinen et al. 2021, section 3.4 and appendix B.4.

Source: Ritter et al., "Rapid Task-Solving in Novel Environments" (2021), section 4, and its public code.

Differs: cities are generated unless ``graphs`` names published ones; edges are drawn uniformly (the public code draws
the first one by place, then direction); the end of an episode counts as a time limit, not as a terminal state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from recollect.config import require, require_at_least, require_one_of
from recollect.lazy import gymnasium, np, torch
from recollect.tasks.arrangements import arrangement_bits
from recollect.tasks.worlds.contract import Advance, TensorWorld, Truth, WorldConfig, WorldSpec
from recollect.tasks.worlds.street_learn.city_graphs import (
    MAX_EDGES,
    Neighbourhoods,
    generate_city,
    read_gexf,
    sample_neighbourhoods,
)
from recollect.tasks.worlds.street_learn.explorer import choose_exploring_move, known_distance, record_move
from recollect.tasks.worlds.street_learn.replay import choose_repeated_move, find_past_path

TRAINING_CITIES = tuple(range(12))
"""Seeds of the cities for training; the paper has as many."""
HELD_OUT_CITIES = (12,)
"""Seed of the city for testing."""
MOVES = ("forward", "left", "right")
COLLECT = 3
SQUARES, PIXELS = 4, 4
"""Squares along each side of a view, and pixels along each side of a square."""

Rule = Literal["paper", "collect"]

BEST_MIXTURE: dict[Rule, tuple[float, ...]] = {"paper": (0.6, 0.4, 0.0), "collect": (0.3, 0.2, 0.0, 0.5)}
"""Action probabilities of the best policy without memory, found on a grid of tenths."""


@dataclass(frozen=True, kw_only=True)
class StreetLearnConfig(WorldConfig):
    """Reach goal after goal in an unknown neighbourhood."""

    rule: Rule = "paper"
    """``paper``: walking onto the goal reaches it, and start and goal are drawn anew; ``collect``: a fourth action
    collects the goal, and the next path starts there."""
    observation: Literal["one_hot", "symbols", "rendered"] = "one_hot"
    """Symbols as one-hot vectors or integers, or small images."""
    num_junctions: int = 5
    """Junctions of a neighbourhood (the last place visited may add more)."""
    steps: int = 200
    """Actions per episode."""
    cities: tuple[int, ...] = TRAINING_CITIES
    """Seeds of generated cities. Test in HELD_OUT_CITIES."""
    graphs: tuple[str, ...] = ()
    """Paths of published city graphs (.gexf), used instead of generated cities."""
    pool: int = 512
    """Largest number of neighbourhoods, sampled from all cities."""

    def __post_init__(self) -> None:
        require_one_of(self, "rule", "observation")
        require_at_least(self, num_junctions=1, steps=1, pool=1)
        given = bool(self.cities or self.graphs)
        require(given, "cities", self.cities, "give the seed of at least one city, or name files in graphs")
        require(min(self.cities, default=0) >= 0, "cities", self.cities, "give seeds from 0 on")

    @property
    def neighbourhoods(self) -> Neighbourhoods:
        """The neighbourhoods that episodes draw from, on the CPU.

        Raises:
            ValueError: a file in ``graphs`` is no city graph, or no neighbourhood has ``num_junctions`` junctions.
        """
        return _pool(() if self.graphs else self.cities, self.graphs, self.num_junctions, self.pool)

    @property
    def spec(self) -> WorldSpec:
        """Two symbols or two views side by side; the first observation may be needed at the last step."""
        chance, oracle = _chance_and_oracle(self)
        edges = self.neighbourhoods.num_edges
        side = SQUARES * PIXELS
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
        """Build the world with ``batch_size`` rows."""
        return StreetLearn(self, batch_size, seed=seed, device=device)


class StreetLearnState(NamedTuple):
    """State of the world."""

    neighbourhood: torch.Tensor  # long [b]: row of the pool
    symbols: torch.Tensor  # long [b, 60]: the symbol of every directed edge
    here: torch.Tensor  # long [b]: the present edge
    goal: torch.Tensor  # long [b]: the edge to reach
    before: torch.Tensor  # long [b]: the edge before the last action; -1 at first
    reached: torch.Tensor  # bool [b]: the last action reached a goal; here and goal show the next task
    collected: torch.Tensor  # float32 [b]: goals so far
    walked: torch.Tensor  # int32 [b, steps + 1]: the edges it was on, step by step; -1 where it has not been yet
    task: torch.Tensor  # int32 [b, steps + 1]: goals reached until then, a change of which means that no move led there
    tried: torch.Tensor  # bool [b, e, 3]: moves whose end the walker knows, see explorer.py


class StreetLearn(TensorWorld[StreetLearnState]):
    """The world of :class:`StreetLearnConfig`, computed by table look-ups.

    ``truth``: the event "goal reached" is a step with reward 1 (the new goal is already visible), "new goal" the first
    step of an episode. The interval is the step that shows what to do again on the present edge: the step after the
    start of the shortest past path from here to the goal; without such a path, the step after the first visit here,
    which shows a result. It is empty where the agent was never here before, and at the last observation. The labels are
    what an agent with perfect memory knows: the symbols of the edges after the three moves from here; the length of the
    shortest known path to the goal; and the symbols of edges from which each of the three moves leads to the goal
    (forward may have several). Unknown labels are 0; so is the length on the goal, with the rule "collect".
    """

    def __init__(
        self, config: StreetLearnConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.config = config
        self.map = Neighbourhoods(*(table.to(self.device) for table in config.neighbourhoods))
        self.views = draw_symbol_views().to(self.device) if config.observation == "rendered" else None

    def begin(self, batch_size: int) -> StreetLearnState:
        """Draw a neighbourhood, its symbols, a start and a goal."""
        neighbourhood = self.draw_integers(len(self.map.num_edges), batch_size)
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
        """Move, and draw the next goal where one is reached."""
        n = state.neighbourhood
        moved = self.map.move[n, state.here, actions.clamp(max=COLLECT - 1)]
        # Drawn in all rows, so that the draws of a row do not depend on other rows.
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
        tried = record_move(state.tried, state.here, actions, moved)
        moved_on = StreetLearnState(n, state.symbols, here, goal, state.here, reached, collected, walked, task, tried)
        return Advance(moved_on, reached.float(), torch.zeros_like(reached), collected)

    def observe(self, state: StreetLearnState) -> torch.Tensor:
        """Return symbols or views of the present edge and of the goal."""
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
        """Return the first move of a shortest path to the goal; on the goal, collect."""
        best = self.map.best[state.neighbourhood, state.here, state.goal].long()
        return torch.where(state.here == state.goal, COLLECT, best)

    def expert(self, name: str) -> torch.Tensor | None:
        """Return a move of the oracle, ``explorer`` (explorer.py), ``replay`` (replay.py) or ``best mixture``.

        Where ``replay`` has no move, it is drawn from the best mixture of moves.
        """
        rule = self.config.rule
        if name == "explorer":
            state = self._present()
            walk = choose_exploring_move(state.tried, self.map.move[state.neighbourhood], state.here, state.goal)
            return torch.where((state.here == state.goal) & (rule == "collect"), COLLECT, walk)
        if name == "replay":
            state = self._present()
            move, tried = self.map.move[state.neighbourhood, state.here], state.tried[self.rows, state.here]
            path = self._find_past_path(state, self._earlier_visits(state))
            walk, found = choose_repeated_move(*path, state.walked, move, tried)
            walk = torch.where(found, walk, self._sample_mixture("paper"))
            return torch.where((state.here == state.goal) & (rule == "collect"), COLLECT, walk)
        if name == "best mixture":
            return self._sample_mixture(rule)
        return super().expert(name)

    def look(self, state: StreetLearnState) -> Truth:
        """Return events, the step that shows what to do again, and where moves lead."""
        event = torch.where(state.reached, 0, torch.where(self.clock == 0, 1, -1))
        here = self._earlier_visits(state)
        best, known = self._find_past_path(state, here)
        shows = torch.where(known, best, here.long().argmax(1)) + 1
        depends = here.any(1) & ~self.over
        return Truth(
            event,
            torch.where(depends, shows, -1),
            torch.where(depends, shows + 1, -1),
            torch.where(self.over[:, None], -1, self._explorer_labels(state)),
        )

    def _sample_mixture(self, rule: Rule) -> torch.Tensor:
        mixture = torch.tensor(BEST_MIXTURE[rule], device=self.device)
        return torch.multinomial(mixture, self.batch_size, replacement=True, generator=self.generator)

    def _earlier_visits(self, state: StreetLearnState) -> torch.Tensor:
        """Return the past steps on the present edge, bool ``[b, steps + 1]``."""
        past = torch.arange(state.walked.shape[1], device=self.device) < self.clock[:, None]
        return (state.walked == state.here[:, None]) & past

    def _find_past_path(self, state: StreetLearnState, visits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return find_past_path(state.walked, state.task, visits, self.clock, state.goal)

    def _explorer_labels(self, state: StreetLearnState) -> torch.Tensor:
        """Return where moves from here lead, the distance to the goal, and edges from which moves lead there, ``[b,
        7]``.
        """
        move, tried = self.map.move[state.neighbourhood], state.tried
        there = state.symbols.gather(1, move[self.rows, state.here]) + 1
        led = torch.where(tried[self.rows, state.here], there, 0)
        way = known_distance(tried, move, state.goal)[self.rows, state.here]
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


def draw_symbol_views() -> torch.Tensor:
    """Draw the view of every symbol, uint8 ``[60, y, x, c]``: different mosaics of random colours."""
    stones = np.random.default_rng(MAX_EDGES).integers(0, 256, (MAX_EDGES, SQUARES, SQUARES, 3), dtype=np.uint8)
    return torch.from_numpy(stones.repeat(PIXELS, 1).repeat(PIXELS, 2))


def expected_goals(pool: Neighbourhoods, rule: Rule, steps: int, policy: tuple[float, ...] | None = None) -> float:
    """Return the expected score of an episode, exactly.

    With V_k(s, g) the expected number of goals in the last k steps from edge s with goal g, and s' = move(s, a),

        paper      V_k(s, g) = E_a[ 1 + mean_{s'' != g''} V_{k-1}(s'', g'')  where s' = g,  else V_{k-1}(s', g) ]
        collect    V_k(s, g) = E_a[ V_{k-1}(s', g) ]  over the moves; on collect
                               1 + mean_{g'' != s} V_{k-1}(s, g'')  where s = g,  else V_{k-1}(s, g)

    and the score is the mean of V_steps over neighbourhoods and over starts s != g.

    Args:
        pool: the neighbourhoods, all equally likely.
        rule: see :class:`StreetLearnConfig`.
        steps: actions of an episode.
        policy: probability of every action, the same everywhere; None takes shortest paths.
    """
    p, e = pool.place.shape
    real = torch.arange(e) < pool.num_edges[:, None]
    fresh = real[:, :, None] & real[:, None, :] & ~torch.eye(e, dtype=torch.bool)
    by_goal = fresh / fresh.sum(2, keepdim=True).clamp(min=1)  # of a new goal, from each start
    by_task = fresh / fresh.sum((1, 2), keepdim=True)  # of a new start and goal
    walked = _expected_next_value(pool, policy)

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


def _expected_next_value(
    pool: Neighbourhoods, policy: tuple[float, ...] | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function from V(s, g) to the sum over moves a of probability(a) V(move(s, a), g)."""
    p, e = pool.place.shape
    if policy is None:
        after = pool.move.gather(2, pool.best.long())  # p s g
        return lambda value: value.gather(1, after)
    share = torch.tensor(policy[:COLLECT]).expand(p, e, COLLECT)
    walk = torch.zeros(p, e, e).scatter_add_(2, pool.move, share)
    return lambda value: walk @ value


@lru_cache(maxsize=8)
def _pool(cities: tuple[int, ...], graphs: tuple[str, ...], num_junctions: int, limit: int) -> Neighbourhoods:
    maps = [read_gexf(path) for path in graphs] or [generate_city(seed) for seed in cities]
    return sample_neighbourhoods(maps, num_junctions, limit)


@lru_cache(maxsize=32)
def _chance_and_oracle(config: StreetLearnConfig) -> tuple[float, float]:
    """Return the scores of chance and of the oracle."""
    actions = 4 if config.rule == "collect" else 3
    pool = config.neighbourhoods
    chance = expected_goals(pool, config.rule, config.steps, (1 / actions,) * actions)
    return chance, expected_goals(pool, config.rule, config.steps)
