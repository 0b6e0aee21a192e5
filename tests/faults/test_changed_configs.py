"""Random changes of a run's config.json: the same config is loaded, or one error says what is wrong and what to do."""

import copy
import json
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.cli import main
from recollect.config import to_json
from recollect.cores import CORES
from recollect.runs.run_directory import changed_settings
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import REGISTRY, EvaluationConfig, FitConfig, ImpalaConfig, SupervisedConfig, fit, load_config
from small_runs import recall

FIT = FitConfig(steps=2, seed=3, report_every=7, report_seconds=None, evaluate_every=2, checkpoint_every=2)
CONFIGS = {
    "supervised": SupervisedConfig(
        task=recall(10),
        core=CORES["gru"](dim=4, num_layers=1),
        fit=FIT,
        batch_size=2,
        evaluation_rows=4,
    ),
    "impala": ImpalaConfig(
        world=TMazeConfig(length=2),
        core=CORES["hcam"](dim=8, num_layers=1, num_heads=2),
        fit=FIT,
        batch_size=2,
        unroll=3,
        evaluation=EvaluationConfig(episodes=2),
    ),
}
VALUES = st.sampled_from(
    [
        None,
        True,
        False,
        -1,
        0,
        1,
        3,
        10**30,
        0.5,
        float("nan"),
        float("inf"),
        "",
        "gru",
        [],
        [1, 2],
        {},
        {"kind": "gru"},
    ]
)
MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=CONFIGS)
def run(request, tmp_path_factory):
    """The directory of a finished run."""
    path = tmp_path_factory.mktemp(request.param) / request.param
    fit(CONFIGS[request.param], path)
    shutil.copy(path / "config.json", path / "whole.json")
    return path


def written(run):
    """The text that the run wrote."""
    return (run / "whole.json").read_text()


def loads_or_names(run, text):
    """Put a text in the place of config.json; return the config that is loaded, or None where its error names it."""
    (run / "config.json").write_bytes(text)
    try:
        return load_config(run)
    except ValueError as error:
        assert "config.json" in str(error) and len(str(error)) < 4000, error
        return None


def places(data, keys=()):
    """Yield the keys that lead to every value of nested objects."""
    for key, value in data.items():
        yield (*keys, key)
        if isinstance(value, dict):
            yield from places(value, (*keys, key))


def change(data, keys, value):
    """Put a value at a place; ``...`` removes what is there."""
    for key in keys[:-1]:
        data = data[key]
    if value is ...:
        data.pop(keys[-1])
    else:
        data[keys[-1]] = copy.deepcopy(value)  # later changes may go into it, and other examples draw it again


@MANY
@given(draw=st.data())
def test_changed_settings_are_refused(run, draw):
    data = json.loads(written(run))
    removed_only = True
    for _ in range(draw.draw(st.integers(1, 3))):
        if not (known := list(places(data))):
            break
        keys = draw.draw(st.sampled_from(known))
        kind = draw.draw(st.sampled_from(["remove", "replace", "add", "rename"]))
        removed_only &= kind == "remove"
        if kind == "add":
            change(data, (*keys[:-1], draw.draw(st.text(max_size=8))), draw.draw(VALUES))
        elif kind == "rename":
            change(data, keys, ...)
            change(data, (*keys[:-1], keys[-1].upper()), 1)
        else:
            change(data, keys, ... if kind == "remove" else draw.draw(VALUES))
    found = loads_or_names(run, json.dumps(data).encode())
    if found is not None:
        config = CONFIGS[run.name]
        assert not changed_settings(to_json(config, REGISTRY), to_json(found, REGISTRY))
        assert found == config or not removed_only  # a run may be resumed with other values, but not without one


@MANY
@given(draw=st.data())
def test_torn_files_are_refused(run, draw):
    content = written(run).encode()
    cut = draw.draw(st.integers(0, len(content)))
    text = content[:cut] + draw.draw(st.sampled_from([b"", b"\x00" * 16, b"}", content[:cut], b"\xff"]))
    found = loads_or_names(run, text)
    assert (found is not None) == (text.strip() == content.strip())
    assert found is None or found == CONFIGS[run.name]


def test_a_setting_that_is_taken_out_is_named_with_its_copy(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    for keys, told in ((("batch_size",), "batch_size: 2, now "), (("fit", "steps"), "fit.steps: 2, now ")):
        data = json.loads(written(run))
        change(data, keys, ...)
        (copy / "config.json").write_text(json.dumps(data))
        with pytest.raises(ValueError, match=f'{told}.*Restore it: "config" in .*progress.json is a copy'):
            load_config(copy)
    data["fit"]["steps"] = 9  # a run that is resumed for longer writes this before its next checkpoint
    (copy / "config.json").write_text(json.dumps(data))
    assert load_config(copy).fit.steps == 9


def test_a_torn_file_has_one_remedy(run, tmp_path, capsys):
    torn = tmp_path / "config.json"
    torn.write_text(written(run)[:40])
    assert main(["train", "--config", str(torn), "--directory", str(tmp_path / "run")]) == 2
    assert " ".join(capsys.readouterr().err.split()).count("give the config.json of a run") == 1
