from recollect.recipes.learner_frames import frames_table


def result(label, speed, status="ok"):
    return {"label": label, "scale": "lite", "status": status, "frames_per_second": speed}


def test_speeds_are_compared_within_an_experiment_and_one_way_of_training():
    rows = [
        result("hcam-lite", 1300.0), result("hcam-lite", 1500.0), result("hcam-k1-lite", 9.0),
        result("hcam-lite", 7.0, status="failed"), result("transformer-xl-lite", 1000.0), result("lstm-lite", 5.0),
        result("hcam-imitated-lite", 30.0), result("transformer-xl-full-window-imitated-lite", 60.0),
    ]  # fmt: skip
    text = frames_table({"words, lite": rows, "ballet, lite": [result("hcam-lite", 12.0)]})
    both = "1 400 (1 300 to 1 500; 2) | 1 000 (1 000 to 1 000; 1) | not run | 1.40 | -"
    assert f"| words, lite | reinforcement | {both} |" in text
    assert "| words, lite | imitated | 30 (30 to 30; 1) | not run | 60 (60 to 60; 1) | - | 0.50 |" in text
    assert "ballet" not in text and "lstm" not in text


def test_labels_without_a_scale_are_read_too():
    text = frames_table({"maze, lite": [result("hcam", 10.0), result("transformer-xl", 20.0)]})
    assert "| maze, lite | reinforcement | 10 (10 to 10; 1) | 20 (20 to 20; 1) | not run | 0.50 | - |" in text


def test_no_speeds_no_table():
    assert frames_table({"recall, lite": [result("hcam", None), result("transformer-xl", 3.0)]}) is None


def test_rows_with_a_teacher_are_imitated_whatever_their_labels():
    rows = [result("hcam", 10.0) | {"taught_by": "imitated oracle"}, result("transformer-xl", 20.0)]
    assert frames_table({"endless, lite": rows}) is None
    rows[1]["taught_by"] = "imitated oracle"
    assert "| endless, lite | imitated | 10 (10 to 10; 1) | 20 (" in frames_table({"endless, lite": rows})
