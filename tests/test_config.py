import dataclasses
import json
import types
import typing
from dataclasses import dataclass, replace

import numpy as np
import pytest

from recollect.config import differences, from_json, lookup, to_json
from recollect.cores import CORES
from recollect.cores.config import CoreConfig
from recollect.recipes import training
from recollect.tasks import TASKS, Copying, StreamTask
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training import REGISTRY, FitConfig, OptimizerConfig, SupervisedConfig, TrainerConfig


@dataclass(frozen=True, kw_only=True)
class SomebodysConfig(CoreConfig):
    """A core that is in no table."""

    dim: int = 3

    def build(self, input_dim):
        raise AssertionError(input_dim)


def config(core=None):
    return SupervisedConfig(
        task=Copying(length=3),
        core=core or CORES["gru"](dim=8),
        optimizer=OptimizerConfig(betas=(0.5, 0.6), clip_norm=None),
        fit=FitConfig(steps=7, stop_score=0.5),
        unroll=4,
    )


def through_text(data):
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("key", CORES)
def test_every_core_round_trips(key):
    made = CORES[key]()
    data = through_text(to_json(made, REGISTRY))
    assert data["kind"] == key
    assert from_json(data, CoreConfig, REGISTRY) == made


@pytest.mark.parametrize("key", TASKS)
def test_every_task_round_trips(key):
    base = StreamTask if issubclass(TASKS[key], StreamTask) else WorldConfig
    assert from_json(through_text(to_json(TASKS[key](), REGISTRY)), base, REGISTRY) == TASKS[key]()


@pytest.mark.parametrize("task", TASKS)
def test_every_default_run_round_trips(task):
    made = training(task, "gru")
    assert from_json(through_text(to_json(made, REGISTRY)), TrainerConfig, REGISTRY) == made


def test_a_whole_run_round_trips():
    data = through_text(to_json(config(), REGISTRY))
    assert data["kind"] == "supervised"
    assert data["task"]["kind"] == "copying"
    assert "kind" not in data["optimizer"]
    assert from_json(data, TrainerConfig, REGISTRY) == config()


def test_somebody_elses_core_needs_no_registration():
    made = SomebodysConfig(dim=5)
    data = through_text(to_json(made, REGISTRY))
    assert data == {"kind": f"{__name__}:SomebodysConfig", "dim": 5}
    assert from_json(data, CoreConfig, REGISTRY) == made


class Experiment:
    @dataclass(frozen=True, kw_only=True)
    class NestedConfig(SomebodysConfig):
        """A core defined in a class."""


def test_a_core_that_is_defined_in_a_class_round_trips():
    made = Experiment.NestedConfig(dim=5)
    data = through_text(to_json(made, REGISTRY))
    assert data["kind"] == f"{__name__}:Experiment.NestedConfig"
    assert from_json(data, CoreConfig, REGISTRY) == made


def test_an_unknown_core_gets_the_nearest_name():
    data = to_json(config(), REGISTRY)
    data["core"]["kind"] = "gruu"
    with pytest.raises(ValueError, match=r"unknown core 'gruu': did you mean 'gru'\? known: .*lstm"):
        from_json(data, TrainerConfig, REGISTRY)


def test_lookup_without_anything_near():
    with pytest.raises(ValueError, match="unknown task 'zzz': known: copying, recall"):
        lookup(TASKS, "zzz", "task")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["core"].update(width=3), r"core\.width: .* has no such field"),
        (lambda data: data["core"].pop("kind"), "core: 'kind' is missing"),
        (lambda data: data["core"].update(kind="json:dumps"), "no CoreConfig"),
        (lambda data: data["core"].update(kind="no.such.module:X"), "cannot import it"),
        (lambda data: data["core"].update(kind="copying"), "unknown core 'copying'"),
    ],
)
def test_bad_json_is_named(change, message):
    data = through_text(to_json(config(), REGISTRY))
    change(data)
    with pytest.raises(ValueError, match=message):
        from_json(data, TrainerConfig, REGISTRY)


def test_differences_name_the_fields():
    old = to_json(config(), REGISTRY)
    assert differences(old, through_text(old)) == []
    new = to_json(replace(config(), core=CORES["lstm"](dim=8), batch_size=3), REGISTRY)
    assert sorted(differences(old, new)) == ["batch_size: 64, now 3", "core.kind: 'gru', now 'lstm'"]
    assert differences({"a": 1}, {"b": 2}) == ["a: 1, now absent", "b: absent, now 2"]


def plain(cls):
    """A config of this class with its defaults, and the first of what may stand in a field that has none."""
    hints = typing.get_type_hints(cls)
    missing = [
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    return cls(
        **{name: plain(next(kind for kind in REGISTRY.values() if issubclass(kind, hints[name]))) for name in missing}
    )


def configs_in(config):
    yield config
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from configs_in(value)


def choices_of(hint):
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [choice for part in typing.get_args(hint) for choice in choices_of(part)]
    return list(typing.get_args(hint)) if typing.get_origin(hint) is typing.Literal else []


@pytest.mark.parametrize("key", REGISTRY)
def test_every_field_with_choices_refuses_what_is_none_of_them(key):
    for config in configs_in(plain(REGISTRY[key])):
        hints = typing.get_type_hints(type(config))
        for field in dataclasses.fields(config):
            if any(isinstance(choice, str) for choice in choices_of(hints[field.name])):
                with pytest.raises(ValueError, match=f"^{field.name}='nonsense': "):
                    replace(config, **{field.name: "nonsense"})


def test_the_choices_are_named():
    with pytest.raises(ValueError, match=r"^feedback='no_past': choose one of 'top_down', 'per_layer', 'none'$"):
        CORES["tlb"](feedback="no_past")
    with pytest.raises(ValueError, match=r"^feedback='per_layer': choose one of 'top_down', 'none'$"):
        CORES["instructed"](feedback="per_layer")


def test_numbers_of_numpy_are_numbers():
    written = to_json(CORES["lstm"](dim=np.int64(8), dropout=np.float32(0.5)), REGISTRY)
    assert (written["dim"], written["dropout"]) == (8, 0.5) and json.loads(json.dumps(written)) == written


def test_a_list_becomes_a_tuple():
    listed, given = TASKS["street-learn"](cities=[0, 1], steps=5), TASKS["street-learn"](cities=(0, 1), steps=5)
    assert listed == given and hash(listed) == hash(given)
    assert TASKS["arrays"](inputs=["x"]).inputs == ("x",)


def test_what_is_no_data_is_refused():
    with pytest.raises(ValueError, match="no JSON data"):
        to_json(replace(config(), device=object()), REGISTRY)  # type: ignore[arg-type]
