import sys
from types import SimpleNamespace

import pytest

from recollect.runs.loggers import LOGGERS, open_logger, require_installed
from recollect.runs.run_directory import RunDirectory


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_what_is_not_installed_is_named_in_one_line(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=f"{name} is not installed; run pip install {name}, or") as found:
        require_installed(name)
    assert "\n" not in str(found.value)


def test_an_unknown_logger_is_named():
    with pytest.raises(ValueError, match="unknown logger 'wandbb': did you mean 'wandb'"):
        require_installed("wandbb")


def test_csv_needs_nothing(tmp_path):
    require_installed("csv")
    assert open_logger("csv", RunDirectory(tmp_path), {}, 0) is None
    assert set(LOGGERS) == {"csv", "tensorboard", "wandb"}


def test_tensorboard_writes_events(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = RunDirectory(tmp_path)
    first = open_logger("tensorboard", run, {}, 0)
    for step in (1, 2, 3):
        first(step, {"loss": float(step)})
    first.close()
    again = open_logger("tensorboard", run, {}, 1)  # resumed from step 1: steps 2 and 3 are made again
    again(2, {"loss": 20.0})
    again.close()
    events = EventAccumulator(str(run.tensorboard)).Reload().Scalars("loss")
    assert [(event.step, event.value) for event in events] == [(1, 1.0), (2, 20.0)]


class FakeRun:
    def __init__(self, settings):
        self.settings, self.rows, self.finished = settings, [], False

    def log(self, row, step):
        self.rows.append((step, row))

    def finish(self):
        self.finished = True


def test_wandb_gets_every_row_and_goes_on_in_the_same_place(tmp_path, monkeypatch):
    made = []

    def init(**settings):
        made.append(FakeRun(settings))
        return made[-1]

    names = iter(("first", "second", "third"))
    fake = SimpleNamespace(init=init, util=SimpleNamespace(generate_id=lambda: next(names)))
    monkeypatch.setitem(sys.modules, "wandb", fake)
    run = RunDirectory(tmp_path / "mine")
    run.path.mkdir()
    for step in (0, 5):
        logger = open_logger("wandb", run, {"batch_size": 4}, step)
        logger(step + 1, {"loss": 0.5})
        logger.close()
    assert [found.settings["id"] for found in made] == ["first", "first"]
    assert made[0].settings["name"] == "mine" and made[0].settings["config"] == {"batch_size": 4}
    assert made[1].rows == [(6, {"loss": 0.5})] and made[1].finished
    open_logger("wandb", run, {}, 0)  # begun anew
    assert made[2].settings["id"] == "second"
