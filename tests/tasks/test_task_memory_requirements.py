"""The ruler against tasks whose demands can be counted by hand."""

import math
from dataclasses import dataclass, replace

import gymnasium
import pytest
import torch

from recollect.tasks import (
    AssociativeInference,
    BalletConfig,
    Copying,
    Mixture,
    Recall,
    TMazeConfig,
    VisualMatchConfig,
    WordLearningConfig,
)
from recollect.tasks.arrangements import arrangement_bits
from recollect.tasks.memory_requirements import MemoryRequirements, measure, policy_scores
from recollect.tasks.videos.shape_activities import ShapeActivities
from recollect.tasks.worlds.contract import NEW_EPISODE, Advance, TensorWorld, Truth, WorldConfig, WorldSpec
from recollect.tasks.worlds.object_permanence import ObjectPermanenceConfig
from recollect.tasks.worlds.street_learn.world import StreetLearnConfig


class Told(TensorWorld):
    """Nine steps: something at 1, a bell at 2, a whistle at 4, a new episode at 6; at 7 and 8 one decision about 1."""

    def begin(self, batch_size):
        return torch.zeros(batch_size)

    def advance(self, state, actions):
        over = self.clock + 1 >= 9
        return Advance(state, state, over, state)

    def observe(self, state):
        return self.clock[:, None].float()

    def plan(self, state):
        return torch.zeros(len(state), dtype=torch.long)

    def look(self, state):
        event = torch.tensor([-1, -1, 0, -1, 1, -1, 2, -1, -1, -1])[self.clock]
        start = torch.tensor([-1, -1, -1, -1, -1, -1, -1, 1, 1, -1])[self.clock]
        return Truth(event, start, torch.where(start < 0, -1, start + 1))


@dataclass(frozen=True, kw_only=True)
class ToldConfig(WorldConfig):
    """The config of :class:`Told`."""

    @property
    def spec(self):
        space = gymnasium.spaces.Box(0.0, 9.0, (1,))
        events = ("bell", "whistle", NEW_EPISODE)
        return WorldSpec(
            observation_space=space,
            action_space=gymnasium.spaces.Discrete(2),
            max_steps=9,
            memory_span=8,
            chance=0.0,
            oracle=0.0,
            events=events,
        )

    def build(self, batch_size, *, seed=0, device="cpu"):
        return Told(self.spec, batch_size, seed=seed, device=device)


def numbers(needs):
    return (
        needs.lag,
        needs.lag_high,
        needs.episodes,
        needs.episodes_high,
        needs.distractors,
    )


def test_a_corridor_is_as_long_as_it_is():
    assert measure(TMazeConfig(length=37), 4) == MemoryRequirements(
        lag=37, lag_high=37, episodes=0, episodes_high=0, distractors=0, bits=1
    )
    assert measure(TMazeConfig(length=37, active=True), 4).lag == 38, "the cue is one step behind the start"


def test_a_colour_is_kept_past_the_apples():
    needs = measure(VisualMatchConfig(cue_steps=4, distractor_steps=11), 8)
    assert numbers(needs) == (12, 12, 0, 0, 1) and needs.bits == pytest.approx(math.log2(3), abs=1e-3)


def test_dances_are_kept_past_those_that_follow():
    needs = measure(BalletConfig(dancers=(4,), delays=(7,), observation="tiles"), 512)
    lags = {4 * 22 - (22 * i + 15) for i in range(4)}
    assert {needs.lag, needs.lag_high} <= lags and needs.lag_high == max(lags)
    assert needs.distractors in (1, 2) and needs.bits == pytest.approx(math.log2(13 * 12 * 11 * 10), abs=1e-3)


def test_a_pause_is_added_to_the_lag_and_lessons_are_counted():
    short, long = (measure(WordLearningConfig(pause_steps=n), 64) for n in (0, 20))
    assert long.lag == short.lag + 20 and short.episodes_high == 0
    past = measure(WordLearningConfig(distractor_phases=(2,), pause_steps=20), 64)
    assert past.lag > short.lag + 60 and past.distractors >= short.distractors + 2
    two = measure(WordLearningConfig(lessons=2), 64)
    assert (two.episodes, two.episodes_high) == (1, 1), "the last question, which is about the first lesson, counts"
    assert two.lag > short.lag


def test_boxes_are_kept_for_their_delay():
    one, ten = (measure(ObjectPermanenceConfig(num_boxes=2, delays=(n,)), 64) for n in (10, 100))
    assert ten.lag_high - one.lag_high == 180 and one.distractors in (0, 1)


def test_rows_of_a_stream_task():
    copying = measure(Copying(length=5, num_digits=3), 2)
    assert numbers(copying) == (9, 9, 0, 0, 1) and copying.bits == 9
    task = Recall()
    batch = task.sample(256, torch.Generator().manual_seed(0))
    rows, steps = (batch.source >= 0).nonzero(as_tuple=True)
    lags = steps - batch.source[rows, steps]
    assert measure(task).lag == float(lags.double().quantile(0.5))


@pytest.mark.parametrize("form", ["tokens", "features"])
def test_all_that_is_shown_in_between_counts(form):
    cues = {"num_keys": 40, "min_blank": 8, "max_blank": 8, "form": form}
    many = measure(Recall(num_cues=32, num_queries=1, **cues), 512)
    assert 13 <= many.distractors <= 18, "31 other cues, before and after the one that is asked for"
    one = replace(Recall(num_cues=1, num_queries=3, **cues), distractors=1.0)
    assert measure(one).distractors == 8 and measure(replace(one, distractors=0.0)).distractors == 0
    anew = replace(one, distractors=0.0, num_cues=8, overwrites=16)
    assert measure(anew).distractors > 4, "cues whose value is not the newest count too"


def test_pairs_and_shapes_in_between_count():
    pairs = AssociativeInference(num_chains=8, width=4, types=("AB",))
    batch = pairs.sample(200, torch.Generator().manual_seed(0))
    later = 15 - batch.source[batch.score_mask] // 2  # of 16 pairs
    assert measure(pairs, 200).distractors == float(later.double().quantile(0.5, interpolation="midpoint"))
    videos = ShapeActivities(length=40, size=16)
    batch = videos.sample(4, torch.Generator().manual_seed(0))
    sources = torch.stack([batch.source == step for step in range(40)]).any(-1).T
    assert torch.equal(videos.count_items(batch) > 0, sources), "every shape that is put is taken later"


def test_a_question_about_a_given_memory_sees_no_other_one():
    one = AssociativeInference(form="paper", num_chains=8, width=2, types=("AC",))
    many = replace(one, trials=0)
    found = measure(many, 256)
    assert found.lag_high <= many.spec.memory_span and abs(found.lag - measure(one, 2048).lag) <= 1
    # A source stands at every step of the 32 alike; the question is answered at its third step.
    assert 16 <= found.lag <= 21 and 31 <= found.lag_high <= 34
    streamed = measure(replace(many, form="streamed"), 256)
    assert streamed.lag > found.lag + 6, "there the questions before it stand in between"
    assert streamed.distractors == found.distractors


def test_a_task_that_does_not_say_what_it_shows_has_no_number():
    class Quiet(Copying):
        def count_items(self, batch):
            return None

    assert math.isnan(measure(Quiet(length=3)).distractors) and measure(Quiet(length=3)).lag == 14


def test_a_mixture_has_the_lags_of_all_its_tasks():
    near, far = Copying(length=20, num_digits=2), Copying(length=100, num_digits=2)
    mixed, beside = measure(Mixture(tasks=(near, far, far))), measure(far)
    assert mixed.lag == mixed.lag_high == beside.lag > measure(near).lag
    assert measure(Mixture(tasks=(near, near, far))).lag == measure(near).lag
    assert measure(Mixture(tasks=(far,))) == beside


def test_what_nobody_knows_is_none():
    class Silent(Copying):
        def sample(self, batch_size, generator):
            batch = super().sample(batch_size, generator)
            return batch._replace(source=torch.full_like(batch.source, -1))

    assert measure(Silent(length=3)) is None
    with pytest.raises(ValueError, match="episodes=0"):
        measure(Copying(), 0)


def test_every_number_of_a_world_counted_by_hand():
    needs = measure(ToldConfig(), 32)
    assert numbers(needs) == (6, 6, 1, 1, 2), "the second step of the same decision is no use of its own"
    assert math.isnan(needs.bits), "the world does not say"


def test_a_world_that_does_not_say_how_long_it_may_be_is_measured():
    @dataclass(frozen=True, kw_only=True)
    class Endless(TMazeConfig):
        @property
        def spec(self):
            return replace(super().spec, max_steps=0, memory_span=0)

    assert numbers(measure(Endless(length=9), 8)) == numbers(measure(TMazeConfig(length=9), 8))


def test_named_policies_are_played():
    world = StreetLearnConfig(cities=(0,), num_junctions=3, pool=8, steps=30)
    scores = policy_scores(world, 32)
    assert list(scores) == ["best mixture", "replay", "explorer"]
    assert scores["best mixture"] < scores["replay"] < scores["explorer"] < world.spec.oracle
    assert policy_scores(TMazeConfig(length=3), 2) == {}
    with pytest.raises(ValueError, match="episodes=0: measure at least one"):
        policy_scores(world, 0)


def test_bits_of_an_arrangement():
    assert arrangement_bits(5, 5) == pytest.approx(math.log2(120)) and arrangement_bits(7, 0) == 0
