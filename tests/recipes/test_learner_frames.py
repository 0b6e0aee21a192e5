from recollect.recipes.learner_frames import frames_table


def result(core, speed, label=None, status="ok"):
    return {
        "core": core, "label": label or f"{core}-lite", "scale": "lite", "status": status, "frames_per_second": speed,
    }  # fmt: skip


def test_speeds_are_compared_within_an_experiment_and_come_from_whole_runs():
    rows = [
        result("hcam", 1300.0), result("hcam", 1500.0), result("hcam", 9.0, label="hcam-k1-lite"),
        result("hcam", 7.0, status="failed"), result("transformer-xl", 1000.0), result("lstm", None),
    ]  # fmt: skip
    text = frames_table({"words, lite": rows, "ballet, lite": [result("hcam", 12.0)]})
    assert "| words, lite | hcam | 1 400 | 1 300 to 1 500 | 2 | 1.40 |" in text
    assert "| words, lite | transformer-xl | 1 000 | 1 000 to 1 000 | 1 | 1.00 |" in text
    assert "| ballet, lite | hcam | 12 | 12 to 12 | 1 | - |" in text
    assert "lstm" not in text


def test_no_speeds_no_table():
    assert (
        frames_table({"recall, lite": [{k: v for k, v in result("gru", 1.0).items() if k != "frames_per_second"}]})
        is None
    )
