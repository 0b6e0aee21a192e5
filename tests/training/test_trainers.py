import json
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256
from typing import get_type_hints

import pytest
import torch
from small_worlds import CueConfig, episodes_of_cues

from recollect.config import from_json, to_json, upgrade_json
from recollect.cores.spatio_temporal import SpatioTemporalAttentionConfig
from recollect.evaluation.recordings import write_recording
from recollect.evaluation.score import Score
from recollect.runs.errors import NonFiniteError
from recollect.tasks import GymnasiumConfig, StreamTask, TMazeConfig
from recollect.training import (
    REGISTRY,
    TRAINERS,
    ImpalaConfig,
    OfflineConfig,
    OfflineDataConfig,
    OptimizerConfig,
    SupervisedConfig,
    TrainerConfig,
    find_trainer,
    fit,
    fresh_seed,
)
from recollect.training.config import evaluation_seed
from recollect.training.optimizers import begin_step, take_step
from small_runs import RUNS

CONFIGS = RUNS | {"decision-transformer": replace(RUNS["decision-transformer"], world=CueConfig())}


@pytest.mark.parametrize("key", TRAINERS)
def test_what_is_asked_outside_a_trainer_has_one_answer_for_all(key, tmp_path):
    config = CONFIGS[key]
    if isinstance(config, OfflineConfig):
        write_recording(episodes_of_cues(), tmp_path / "episodes.npz")
        config = replace(config, data=OfflineDataConfig(source=str(tmp_path / "episodes.npz")))
    assert isinstance(config.trained_on, type(config).task_class())
    assert find_trainer(type(config.trained_on)) in (type(config), ImpalaConfig, SupervisedConfig)  # the first that can
    torch.manual_seed(0)
    model = config.build_agent().eval()
    score = config.evaluate(model, samples=6, seed=3)
    assert isinstance(score, Score)
    again = config.trained_on
    if isinstance(again, StreamTask):
        again = again.scored_on(final=True)
    assert score == config.evaluate(model, again, samples=6, seed=3, batch_size=config.batch_size)
    trainer = config.build()
    assert tuple(score.metrics()) == trainer.evaluation_metrics
    trainer.close()
    sums, counts = score.by_row()
    if key != "detection":  # its rows are a jackknife's pseudo-values, whose mean is the score without its bias
        assert sum(sums) / sum(counts) == pytest.approx(score.score)
    data = score.to_json()
    assert data == json.loads(json.dumps(data)) and {"score", "low", "high", "chance"} <= data.keys()
    assert f"{score.score:.4f} (95 % interval" in score.describe() and " 6 " in score.describe()


def test_a_model_is_scored_elsewhere_too():
    config = CONFIGS["impala"]
    agent = config.build_agent().eval()
    near, far = (config.evaluate(agent, TMazeConfig(length=n), samples=4, seed=0) for n in (3, 9))
    assert max(near.lengths) < min(far.lengths)


def test_a_task_that_nobody_trains_on_is_named():
    with pytest.raises(
        ValueError, match="no trainer takes a int: trainers are detection, supervised, impala, cloning, class"
    ):
        find_trainer(int)


def test_greedy_and_sampled_actions_differ_and_the_run_says_which_by_default():
    config = CONFIGS["impala"]
    torch.manual_seed(0)
    agent = config.build_agent().eval()
    found = {how: config.evaluate(agent, samples=8, seed=1, greedy=how) for how in (None, True, False)}
    assert found[None] == found[True] != found[False]


def old_names(data):
    return {"rows" if name == "batch_size" else name: value for name, value in data.items()}


def test_a_config_from_before_a_field_was_renamed_is_read():
    config = CONFIGS["impala"]
    data = to_json(config, REGISTRY)
    old = old_names(data)
    del old["bfloat16"]  # a field that came later has its default
    assert from_json(old, TrainerConfig, REGISTRY) == config
    assert upgrade_json(old, TrainerConfig, REGISTRY) == data
    assert upgrade_json({"kind": "nobody.knows:This"}, TrainerConfig, REGISTRY) == {"kind": "nobody.knows:This"}


def test_a_field_that_is_gone_is_read_where_nothing_is_lost():
    config = replace(CONFIGS["impala"], core=SpatioTemporalAttentionConfig(dim=8))
    data = to_json(config, REGISTRY)
    data["core"]["hidden_dim"] = None
    assert from_json(data, TrainerConfig, REGISTRY) == config
    data["core"]["hidden_dim"] = 12
    with pytest.raises(ValueError, match="hidden_dim: SpatioTemporalAttentionConfig has no such field"):
        from_json(data, TrainerConfig, REGISTRY)


def test_a_run_from_before_a_field_was_renamed_resumes(tmp_path):
    config = CONFIGS["impala"]
    config = replace(config, fit=replace(config.fit, steps=4, report_every=1, checkpoint_every=1))
    whole = fit(config, tmp_path / "whole")

    def crash(step, metrics):
        if step == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fit(config, tmp_path / "run", loggers=[crash])
    (tmp_path / "run/config.json").write_text(json.dumps(old_names(to_json(config, REGISTRY))))
    newest = tmp_path / "run/checkpoint/step-000000002"
    progress = json.loads((newest / "progress.json").read_text())
    content = json.dumps(progress | {"config": old_names(progress["config"])}).encode()
    manifest = json.loads((newest / "manifest.json").read_text())
    (newest / "progress.json").write_bytes(content)
    (newest / "manifest.json").write_text(json.dumps(manifest | {"progress.json": sha256(content).hexdigest()}))
    resumed = fit(config, tmp_path / "run", resume=True)
    for name, value in whole.agent.state_dict().items():
        assert torch.equal(value, resumed.agent.state_dict()[name])
    with pytest.raises(ValueError, match="another config: batch_size: 4, now 5"):
        fit(replace(config, batch_size=5), tmp_path / "run", resume=True)


def test_a_step_that_is_not_finite_changes_no_weight():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    config = OptimizerConfig(clip_norm=1.0)
    optimizer = config.build(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    begin_step(optimizer, 0.1)
    loss = model(torch.full((2, 3), torch.nan)).sum()
    with pytest.raises(NonFiniteError, match="the loss is nan"):
        take_step(model, optimizer, config, loss, finite={"loss": loss})
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    loss = model(torch.full((2, 3), 1e38)).sum()  # finite, but not its gradient's length
    with pytest.raises(NonFiniteError, match="the gradient norm is inf"):
        take_step(model, optimizer, config, loss * 1e30, finite={"loss": loss.detach() * 0})
    begin_step(optimizer, 0.1)
    loss = model(torch.ones(2, 3)).sum()
    found = take_step(model, optimizer, config, loss, finite={"loss": loss}, others={"share": torch.tensor(torch.nan)})
    assert list(found) == ["loss", "gradient_norm", "share"] and found["share"] != found["share"]
    assert found["gradient_norm"] == pytest.approx(4.0)
    assert not torch.equal(before["weight"], model.weight)


def test_evaluations_of_neighbouring_seeds_share_no_episode() -> None:
    """Rows of Gymnasium's worlds count on from one seed: 64 rows of seeds 0 and 1 were 63 times the same episode."""
    world = GymnasiumConfig(id="CartPole-v1")
    seeds = [seed_of(seed) for seed_of in (evaluation_seed, fresh_seed) for seed in (0, 1, 2)]
    starts = [world.build(64, seed=seed).reset().observation for seed in seeds]
    assert len(torch.unique(torch.cat(starts), dim=0)) == len(seeds) * 64


@pytest.mark.parametrize("seed", [-5000, -1, 2**31, 2**32 + 1, 1_763_900_000_000_000_000])
@pytest.mark.parametrize("world", [GymnasiumConfig(id="CartPole-v1"), TMazeConfig(length=3, slack=9)])
def test_every_seed_of_a_run_has_evaluations(world, seed):
    for seed_of in (evaluation_seed, fresh_seed):
        world.build(2, seed=seed_of(seed)).reset()


def settings_within(config):
    """A config and those inside it."""
    yield config
    for field in fields(config):
        if is_dataclass(getattr(config, field.name)):
            yield from settings_within(getattr(config, field.name))


@pytest.mark.parametrize("key", CONFIGS)
def test_whole_numbers_are_asked_for_by_name_in_whatever_a_trainer_is_told(key):
    for config in settings_within(CONFIGS[key]):
        for name, kind in get_type_hints(type(config)).items():
            if kind is int and name in {field.name for field in fields(config)}:
                with pytest.raises(ValueError, match=rf"{name}=1\.5: give a whole number"):
                    replace(config, **{name: 1.5})
