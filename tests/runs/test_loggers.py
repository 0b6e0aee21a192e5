import sys
from types import SimpleNamespace

import pytest

from recollect.cli.options import TrainOptions
from recollect.runs.loggers import LOGGERS, open_logger, reopen_loggers, require_installed, require_log
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
        self.settings, self.rows, self.finished, self.summary = settings, [], False, {}

    def log(self, row, step=None):
        self.rows.append((step, row))

    def finish(self):
        self.finished = True


@pytest.fixture
def wandb(monkeypatch):
    """A module in the place of wandb, whose runs are in ``made``."""
    made = []

    def init(**settings):
        made.append(FakeRun(settings))
        return made[-1]

    fake = SimpleNamespace(init=init, made=made)
    fake.Video, fake.Html = (lambda path, format: (path, format)), (lambda text, inject: text)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr("recollect.runs.loggers.find_spec", lambda name: fake)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return fake


def test_wandb_gets_every_row_and_goes_on_in_the_same_place(tmp_path, wandb):
    made = wandb.made
    run = RunDirectory(tmp_path / "mine")
    run.path.mkdir()
    for step in (0, 5):
        logger = open_logger("wandb", run, {"batch_size": 4}, step)
        logger(step + 1, {"loss": 0.5})
        logger.close()
    assert made[0].settings["id"] == made[1].settings["id"]
    assert made[0].settings["name"] == "mine" and made[0].settings["config"] == {"batch_size": 4}
    assert made[1].rows == [(6, {"loss": 0.5})] and made[1].finished
    open_logger("wandb", run, {}, 0)  # begun anew
    assert made[2].settings["id"] != made[0].settings["id"]


def test_a_project_that_was_typed_is_kept(tmp_path, wandb, monkeypatch):
    run = RunDirectory(tmp_path)
    open_logger("wandb:mine", run, {}, 0)
    open_logger("wandb", run, {}, 5)
    monkeypatch.setenv("WANDB_PROJECT", "of-the-shell")
    open_logger("wandb", run, {}, 0)
    assert [one.settings["project"] for one in wandb.made] == ["mine", "mine", "of-the-shell"]
    (tmp_path / "wandb-id.txt").write_text("of-an-older-version")
    open_logger("wandb", run, {}, 5)
    assert (wandb.made[-1].settings["id"], wandb.made[-1].settings["project"]) == (
        "of-an-older-version",
        "of-the-shell",
    )
    assert TrainOptions(log=("wandb", "csv"), wandb_project="mine").loggers() == ("csv", "wandb:mine")
    with pytest.raises(ValueError, match="log='tensorboard:mine': only wandb has projects"):
        require_installed("tensorboard:mine")


def files_of_a_run(folder):
    run = RunDirectory(folder)
    run.config_file.write_text("{}")
    run.metrics_file.write_text("step\n")
    (folder / "film.gif").write_bytes(b"GIF89a")
    (folder / "page.html").write_text("<h1>Yes</h1>")
    return run


def log_files(names, run):
    require_log(names, run.path)
    with reopen_loggers(names, run.path) as logs:
        for log in logs:
            log.log_film("video", 20, run.path / "film.mp4", run.path / "film.gif")
            log.log_page("memory", 20, run.path / "page.html", "Yes. It acts on its memory.")


def test_films_and_pages_reach_the_log_of_a_run_and_hide_none_of_its_rows(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = files_of_a_run(tmp_path)
    first = open_logger("tensorboard", run, {}, 0)
    for step in (10, 20, 30):  # the best evaluation, of step 20, is filmed later
        first(step, {"loss": float(step)})
    first.close()
    log_files(["tensorboard"], run)
    events = EventAccumulator(str(run.tensorboard)).Reload()
    assert [event.step for event in events.Scalars("loss")] == [10, 20, 30]
    assert [(event.step, event.encoded_image_string) for event in events.Images("video")] == [(20, b"GIF89a")]
    (text,) = events.Tensors("memory/text_summary")
    assert text.step == 20 and b"Yes. It acts on its memory." in text.tensor_proto.string_val[0]


def test_wandb_gets_films_and_pages_in_the_run_s_own_log(tmp_path, wandb):
    run = files_of_a_run(tmp_path)
    open_logger("wandb:mine", run, {}, 0)
    log_files(["wandb"], run)
    first, last = wandb.made
    assert (last.settings["id"], last.settings["project"], last.finished) == (first.settings["id"], "mine", True)
    video = (str(tmp_path / "film.mp4"), "mp4")
    assert [row for _, row in last.rows] == [
        {"video": video, "video/step": 20},
        {"memory": "<h1>Yes</h1>", "memory/step": 20},
    ]
    assert last.summary == {"memory/summary": "Yes. It acts on its memory."}


def test_what_is_no_run_has_no_log(tmp_path):
    with pytest.raises(ValueError, match="is no run directory, and has no log: name the run"):
        require_log(["csv"], tmp_path)
