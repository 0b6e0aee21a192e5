import pytest

from recollect.runs.metrics import MetricsFile, read_rows


def test_rows_are_written_at_once(tmp_path):
    file = MetricsFile(tmp_path / "metrics.csv", ("loss", "score"), 0)
    file.append(10, {"loss": 0.5})
    file.append(20, {"loss": 0.25, "score": 1.0})
    assert (tmp_path / "metrics.csv").read_text() == "step,loss,score\n10,0.5,\n20,0.25,1.0\n"
    assert read_rows(tmp_path / "metrics.csv")[1] == {"step": "20", "loss": "0.25", "score": "1.0"}


@pytest.mark.parametrize("torn", ["", "30,0.1", "30,0.1,", "3", "30,0.1\n", "30,0.1,0.2,0.3\n", "\x00\x00\n"])
def test_a_resume_cuts_what_comes_later_and_what_is_torn(tmp_path, torn):
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss,score\n10,0.5,\n20,0.25,1.0\n" + torn)
    MetricsFile(path, ("loss", "score"), 10).append(20, {"loss": 0.25})
    assert path.read_text() == "step,loss,score\n10,0.5,\n20,0.25,\n"


def test_a_run_that_starts_anew_starts_a_new_file(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n10,0.5\n")
    MetricsFile(path, ("loss",), 0)
    assert path.read_text() == "step,loss\n"


def test_an_unknown_metric_is_named(tmp_path):
    with pytest.raises(ValueError, match="lss"):
        MetricsFile(tmp_path / "metrics.csv", ("loss",), 0).append(1, {"lss": 0.0})
