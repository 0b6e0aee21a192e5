import itertools
import json
import time
from dataclasses import dataclass, replace

import pytest
import torch
from small_worlds import Cue, CueConfig, StepsConfig

from recollect.agents.config import ActorCriticConfig
from recollect.config import from_json, to_json
from recollect.cores import CORES
from recollect.evaluation import agents
from recollect.runs.errors import NonFiniteError, WorldError
from recollect.runs.metrics import read_rows
from recollect.tasks import BalletConfig, ObjectPermanenceConfig, Recall, TMazeConfig, WordLearningConfig
from recollect.training import (
    REGISTRY,
    CurriculumConfig,
    EvaluationConfig,
    FitConfig,
    ImpalaConfig,
    OptimizerConfig,
    ScheduleConfig,
    SupervisedConfig,
    TrainerConfig,
    fit,
)
from recollect.training.curriculum import Curriculum
from recollect.training.impala import trainer as impala
from recollect.training.impala.trainer import ImpalaTrainer
from recollect.training.streams.supervised import SupervisedTrainer

DELAYS = CurriculumConfig(field="delay", values=(0, 1), success=0.4, episodes=12)


def config(curriculum=DELAYS, world=None, **settings):
    settings = {
        "batch_size": 6,
        "unroll": 5,
        "core": CORES["hcam"](dim=8, num_layers=1, num_heads=2, memory_len=3, chunk_len=2, num_chunks=4),
        "agent": ActorCriticConfig(width=8),
        "evaluation": EvaluationConfig(episodes=4),
        "fit": FitConfig(steps=12, checkpoint_every=2, report_every=1),
        "schedule": ScheduleConfig(curriculum=curriculum),
    } | settings
    return ImpalaConfig(world=world or CueConfig(delay=3), **settings)


def trainer(*arguments, **settings):
    torch.manual_seed(0)
    return ImpalaTrainer(config(*arguments, **settings))


def test_levels_are_the_task_with_one_field_changed_and_the_task_itself():
    world = CueConfig(delay=3)
    assert DELAYS.levels(world) == (CueConfig(delay=0), CueConfig(delay=1), world)
    assert CurriculumConfig(field="delay", values=(1, 3)).levels(world) == (CueConfig(delay=1), world)
    assert CurriculumConfig().levels(world) == (world,)
    boxes = ObjectPermanenceConfig(delays=(0, 10))
    assert [level.delays for level in CurriculumConfig(field="delays", values=(0, 4)).levels(boxes)] == [
        (0,),
        (4,),
        (0, 10),
    ]
    ballet = BalletConfig(dancers=(8,))
    assert [level.dancers for level in CurriculumConfig(field="dancers", values=(2, 4)).levels(ballet)] == [
        (2,),
        (4,),
        (8,),
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"field": "dely", "values": (1,)}, "curriculum.field='dely': did you mean 'delay'"),
        ({"field": "fault", "values": (1,)}, "curriculum.field='fault': .*CueConfig has the numbers delay"),
        ({"field": "delay", "values": (1.5,)}, "curriculum.values: 1.5 is no value of delay: give a whole number"),
        ({"field": "delay", "values": (float("inf"),)}, r"values=\(inf,\): give a tuple of finite numbers"),
    ],
)
def test_a_field_that_is_no_number_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        trainer(CurriculumConfig(**settings))


@pytest.mark.parametrize("settings", [{"field": "delay"}, {"values": (1.0,)}])
def test_half_a_curriculum_is_refused(settings):
    with pytest.raises(ValueError, match=r"curriculum\.values="):
        CurriculumConfig(**settings)


@pytest.mark.parametrize("settings", [{"successes": (1.0,)}, {"successes": (1.0, 2.0), "success": 0.5}])
def test_successes_are_one_for_each_value_and_in_place_of_success(settings):
    with pytest.raises(ValueError, match=r"curriculum\.success"):
        CurriculumConfig(field="delay", values=(0, 1), **settings)


def test_a_value_that_the_world_refuses_says_so():
    world = BalletConfig(dancers=(4,), observation="tiles")
    with pytest.raises(ValueError, match=r"curriculum.values: 9 is no value of dancers: dancers=\(9,\): give"):
        CurriculumConfig(field="dancers", values=(9,)).levels(world)


def test_a_field_that_changes_what_is_seen_is_refused_before_anything_is_built():
    with pytest.raises(ValueError, match=r"curriculum\.field='view': its value 5 changes the observation space"):
        trainer(CurriculumConfig(field="view", values=(5,)), WordLearningConfig(view=9))


def test_overlapping_actors_are_refused():
    with pytest.raises(ValueError, match=r"curriculum\.field='delay': rollouts of two levels"):
        ScheduleConfig(mode="asynchronous", curriculum=DELAYS)


def rows(*scores):
    """A rollout in which one episode ended in each row."""
    return [[score] for score in scores]


def test_a_level_is_over_when_the_newest_episodes_pass():
    settings = CurriculumConfig(field="delay", values=(0, 1), success=0.75, episodes=8)
    run = Curriculum(settings, settings.levels(CueConfig()))
    run.record(rows(1.0, 1.0, 1.0, 1.0))
    assert not run.passed  # too few
    run.record([[]] * 4)
    run.record(rows(0.0, 0.0, 0.0, 0.0))
    assert not run.passed
    run.record(rows(1.0, 1.0, 1.0, 1.0))  # 4 of the newest 8
    assert not run.passed
    run.record(rows(1.0, 1.0, 0.0, 1.0))  # 7 of 8
    assert run.passed
    other = Curriculum(settings, run.levels)
    other.load(run.save())
    for each in (run, other):
        each.advance()
        assert (each.level, each.passed, each.task) == (1, False, CueConfig(delay=1))
        each.record([[1.0] * 8])
        each.advance()
        each.record([[1.0] * 8])
        assert (each.level, each.passed, each.task) == (2, False, CueConfig())  # nothing comes behind the last


def test_every_level_may_ask_for_a_score_of_its_own():
    settings = CurriculumConfig(field="delay", values=(0, 1), successes=(5.0, 0.5), episodes=4)
    run = Curriculum(settings, settings.levels(CueConfig()))
    run.record(rows(1.0, 1.0, 1.0, 1.0))
    assert not run.passed
    run.record(rows(5.0, 5.0, 5.0, 5.0))
    assert run.passed
    run.advance()
    run.record(rows(1.0, 0.0, 0.0, 1.0))
    assert run.passed
    run.advance()
    run.record(rows(99.0, 0.0, 0.0, 0.0))
    assert not run.passed


def test_rows_whose_episodes_end_early_are_no_more_than_their_share():
    settings = CurriculumConfig(field="delay", values=(0,), success=0.9, episodes=8)
    run = Curriculum(settings, settings.levels(CueConfig()))
    for _ in range(5):  # three rows solve it quickly; the fourth walks about
        run.record([[1.0, 1.0], [1.0], [1.0, 1.0], []])
        run = _reloaded(run)
        assert not run.passed
    run.record([[], [], [], [0.0]])
    assert not run.passed  # it has one of its two
    run.record([[1.0], [1.0], [1.0], [0.0]])
    assert not run.passed  # 6 of 8, and 28 of 30 as they came
    for _ in range(2):
        run.record([[], [], [], [1.0]])
    assert run.passed


def test_a_level_is_not_passed_far_below_the_score_it_asks_for():
    """A policy that succeeds in 8 of 10 episodes, quickly, and fails slowly."""
    world = TMazeConfig(length=7, slack=60)
    settings = CurriculumConfig(field="length", values=(7,), success=0.9, episodes=200)
    for seed in range(3):
        run = Curriculum(settings, (world, TMazeConfig(length=50)))
        made, draw = world.build(64, seed=seed), torch.Generator().manual_seed(seed)
        step, good = made.reset(), torch.rand(64, generator=draw) < 0.8
        for _ in range(20):
            finished = [[] for _ in range(64)]
            for _ in range(16):
                step = made.step(torch.where(good, made.oracle(), 1))  # 1: up, which does nothing in the corridor
                good = torch.where(step.is_first, torch.rand(64, generator=draw) < 0.8, good)
                for row in step.is_last.nonzero()[:, 0].tolist():
                    finished[row].append(float(step.score[row]))
            run.record(finished)
            assert not run.passed


def test_rows_in_which_a_teacher_acts_are_not_waited_for():
    settings = CurriculumConfig(field="delay", values=(0,), success=1.0, episodes=4)
    run = Curriculum(settings, settings.levels(CueConfig()))
    run.record([None] * 4)
    assert not run.passed
    run.record([None, None, [1.0, 1.0], [1.0]])
    assert not run.passed
    run.record([None, None, [1.0], [1.0]])
    run = _reloaded(run)
    assert run.passed
    run.record([None, [], [1.0], [1.0]])
    assert not run.passed  # a row was let go
    run.record([None, [1.0, 1.0], [], []])
    assert run.passed


def test_scores_of_older_files_are_left_and_counted_from_there_on():
    settings = CurriculumConfig(field="delay", values=(0, 1), success=1.0, episodes=4)
    run = Curriculum(settings, settings.levels(CueConfig()))
    run.load({"level": 1, "rollouts": 3, "recent": [[4, 4.0]]})
    assert (run.level, run.rollouts, run.passed) == (1, 3, False)
    run.record([[1.0], [1.0]])
    run.record([[1.0], [1.0]])
    assert run.passed


def test_patience_ends_a_level_without_success_and_counts_every_level_anew():
    settings = CurriculumConfig(field="delay", values=(0, 1), success=1.0, episodes=4, patience=3)
    run = Curriculum(settings, settings.levels(CueConfig()))
    for _ in range(2):
        run.record([[]] * 4)  # a rollout in which no episode ends is one
        assert not run.passed
    run = _reloaded(run)
    run.record(rows(0.0, 0.0, 0.0, 0.0))
    assert run.passed
    run.advance()
    run.record(rows(1.0, 1.0, 1.0, 1.0))
    assert run.passed  # by success
    run.advance()
    for _ in range(5):
        run.record(rows(1.0, 1.0, 1.0, 1.0))
    assert not run.passed and run.level == 2  # nothing comes behind the last


def _reloaded(run):
    other = Curriculum(run.config, run.levels)
    other.load(json.loads(json.dumps(run.save())))
    return other


def test_no_patience_at_all_is_refused():
    with pytest.raises(ValueError, match=r"curriculum\.patience=0: give 1 rollout or more"):
        CurriculumConfig(field="delay", values=(0,), patience=0)


def test_a_new_level_begins_at_the_border_of_two_rollouts_with_new_episodes_and_memories():
    made = trainer()
    learned, original = [], impala.impala_loss

    def loss(agent, rollout, *arguments, **settings):
        learned.append((made.curriculum.level, rollout.is_first.clone(), rollout.state))
        return original(agent, rollout, *arguments, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(impala, "impala_loss", loss)
        while made.curriculum.level < 2 and len(learned) < 60:
            numbers = made.step()
            assert numbers["level"] == made.curriculum.level
            assert made.actors.collectors[0].world.config == made.curriculum.task
    levels = [level for level, _, _ in learned]
    assert levels == sorted(levels) and set(levels) == {0, 1, 2}
    for (before, _, _), (level, is_first, state) in itertools.pairwise(learned):
        if level > before:
            assert is_first[:, 0].all() and (state.steps == 0).all() and (state.lengths == 0).all()
    made.close()


def test_a_step_that_fails_at_a_new_level_is_saved_with_the_world_of_that_level(tmp_path, monkeypatch):
    run = config(CurriculumConfig(field="delay", values=(0,), patience=1))
    whole = fit(run, tmp_path / "whole")
    original = ImpalaTrainer._learn

    def broken(self, rollout):
        if self.updates == 1:  # the first step of the second level
            raise NonFiniteError("the loss is nan")
        return original(self, rollout)

    with monkeypatch.context() as patch, pytest.raises(NonFiniteError, match="at step 2"):
        patch.setattr(ImpalaTrainer, "_learn", broken)
        fit(run, tmp_path / "cut")
    again = fit(run, tmp_path / "cut", resume=True)
    assert same(whole, again)
    rows_of = [[row["episode_length"] for row in read_rows(r.directory.metrics_file)] for r in (whole, again)]
    assert rows_of[0] == rows_of[1]


@dataclass(frozen=True, kw_only=True)
class SlowConfig(CueConfig):
    """The world of CueConfig, which takes long to make at its last level."""

    def build(self, batch_size, *, seed=0, device="cpu"):
        time.sleep(60 if self.delay == 3 else 0)
        return Cue(self, batch_size, seed=seed, device=device)


@pytest.mark.long
def test_a_level_whose_world_is_not_made_in_time_is_named():
    levels = CurriculumConfig(field="delay", values=(0,), patience=1)
    made = trainer(world=SlowConfig(delay=3), schedule=ScheduleConfig(timeout=3.0, curriculum=levels))
    made.step()
    before = made.save()[1]["curriculum"]
    with pytest.raises(WorldError, match=r"actor 0: its world is not made and reset after 3 s"):
        made.step()
    assert made.save()[1]["curriculum"] == before
    made.close()


def test_evaluations_are_at_the_last_level(monkeypatch):
    made, asked = trainer(), []
    original = agents.evaluate_agent
    monkeypatch.setattr(agents, "evaluate_agent", lambda m, w, *a, **k: asked.append(w) or original(m, w, *a, **k))
    made.evaluate()
    assert made.curriculum.level == 0 and asked == [CueConfig(delay=3)]
    made.close()


def stop_at(number):
    def stop(step, metrics):
        if step == number:
            raise KeyboardInterrupt

    return stop


def same(one, two):
    one, two = one.agent.state_dict(), two.agent.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("world", [CueConfig(delay=3), CueConfig(delay=3, saveable=False)], ids=["saved", "reset"])
def test_a_run_resumes_in_the_middle_of_a_curriculum(tmp_path, world):
    run = config(world=world)
    whole = fit(run, tmp_path / "whole")
    rows = read_rows(whole.directory.metrics_file)
    levels = [int(float(row["level"])) for row in rows]
    middle = levels.index(1) + 2  # the checkpoint before it is of level 1, or of level 0 that has been passed
    assert levels[0] == 0 and levels[-1] == 2
    for number in {middle, levels.index(1) + 1}:
        folder = tmp_path / str(number)
        with pytest.raises(KeyboardInterrupt):
            fit(run, folder, loggers=[stop_at(number)])
        again = fit(run, folder, resume=True)
        assert again.step == 12
        resumed = [int(float(row["level"])) for row in read_rows(again.directory.metrics_file)]
        if world.saveable:
            assert same(whole, again) and resumed == levels
        else:
            assert resumed == sorted(resumed)


def test_it_is_part_of_the_config_and_old_configs_have_none(tmp_path):
    data = to_json(config(), REGISTRY)
    assert from_json(data, TrainerConfig, REGISTRY) == config()
    del data["schedule"]["curriculum"]
    assert from_json(data, TrainerConfig, REGISTRY) == config(CurriculumConfig())
    with pytest.raises(KeyboardInterrupt):
        fit(config(), tmp_path, loggers=[stop_at(4)])
    with pytest.raises(ValueError, match=r"schedule.curriculum.success: 0.4, now 0.9"):
        fit(config(replace(DELAYS, success=0.9)), tmp_path, resume=True)


def test_worlds_without_a_curriculum_report_no_level():
    made = trainer(CurriculumConfig(), StepsConfig())
    assert made.curriculum is None and "level" not in made.step() and "level" not in made.step_metrics
    assert "curriculum" not in made.save()[1]
    made.close()


RECALL = SupervisedConfig(
    task=Recall(num_keys=3, num_values=2, num_cues=1, num_queries=1, min_blank=0, max_blank=6, length=16),
    core=CORES["gru"](dim=8, num_layers=1),
    optimizer=OptimizerConfig(learning_rate=1e-2),
    fit=FitConfig(steps=24, report_every=1, checkpoint_every=5, evaluate_every=24),
    batch_size=8,
    unroll=6,
    evaluation_rows=8,
    curriculum=CurriculumConfig(field="max_blank", values=(0, 2), success=0.3, episodes=16),
)


def test_rows_of_a_stream_task_become_harder_and_resume_bit_for_bit(tmp_path):
    whole = fit(RECALL, tmp_path / "whole")
    levels = [int(float(row["level"])) for row in read_rows(whole.directory.metrics_file)]
    assert levels[0] == 0 and levels[-1] == 2
    with pytest.raises(KeyboardInterrupt):
        fit(RECALL, tmp_path / "cut", loggers=[stop_at(levels.index(1) + 3)])
    assert same(whole, fit(RECALL, tmp_path / "cut", resume=True))


def test_rows_count_once_however_many_unrolls_they_are_read_in():
    """Counted with a plain loop: rows are 16 steps in unrolls of 6, and most unrolls have no question."""
    made = SupervisedTrainer(RECALL)
    assert made.curriculum is not None
    recorded = []
    made.curriculum.record = recorded.append
    for row in range(1, 5):
        asked = right = 0.0
        for _ in range(3):
            numbers = made.step()
            if "accuracy" in numbers:
                batch, begin = made.batch, (made.position or 16) - (6 if made.position else 4)
                here = int(batch.score_mask[:, begin : begin + 6].sum())
                asked, right = asked + here, right + here * numbers["accuracy"]
        assert len(recorded) == row and asked > 0
        assert recorded[-1] == [[pytest.approx(right / asked)]] * 8


def test_a_stream_task_has_to_keep_its_classes():
    curriculum = CurriculumConfig(field="num_values", values=(3,))
    with pytest.raises(ValueError, match=r"curriculum\.field='num_values': its value 3 changes the num classes"):
        SupervisedTrainer(replace(RECALL, curriculum=curriculum))
