import itertools
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from recollect.comparison.suite import Suite, scale_score
from recollect.comparison.table_pictures import (
    COLOURS,
    INK,
    ORANGE,
    Bar,
    Cell,
    HeatMap,
    Panel,
    colour,
    heat_map_svg,
    level_curves_svg,
    needs_white_text,
    profile_svg,
)


def suite(**more):
    scores = {
        ("a", "x"): np.array([0.9, 1.0, 0.8]),
        ("a", "y"): np.array([0.2, 0.4, 0.6]),
        ("b", "x"): np.array([0.1, 0.85, 0.3]),
        ("b", "y"): np.array([0.0, 0.1, -0.1]),
        ("a", "z"): np.array([1.0]),
    }
    return Suite(methods=["b", "a"], tasks=["x", "y", "z"], scores=scores | more)


def texts(svg):
    return [node.text for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_scores_are_scaled_between_chance_and_oracle():
    assert scale_score(0.5, 0.5, 1.0) == 0 and scale_score(1.0, 0.5, 1.0) == 1
    assert scale_score(3.0, 4.0, 14.0) == pytest.approx(-0.1), "below chance stays visible"
    for chance, oracle in ((1.0, 1.0), (float("nan"), 1.0)):
        with pytest.raises(ValueError, match="two different ends"):
            scale_score(0.5, chance, oracle)


def test_a_mean_is_over_the_tasks_that_all_have_met():
    found = suite()
    assert found.shared == ["x", "y"], "b has not been run in z"
    scores = np.array([0.9, 1.0, 0.8, 0.2, 0.4, 0.6])
    assert found.mean("a") == pytest.approx(stats.trim_mean(scores, 0.25))
    low, high = found.interval("a")
    assert low < found.mean("a") < high
    full = suite(**{})
    full = Suite(methods=["a", "b"], tasks=full.tasks, scores={**full.scores, ("b", "z"): np.array([0.0])})
    assert full.shared == ["x", "y", "z"] and full.interval("a") is None, "one seed of z has no spread"
    nobody = Suite(methods=["a", "c"], tasks=["x"], scores=full.scores)
    assert nobody.shared == [] and np.isnan(nobody.mean("a")) and np.isnan(nobody.beats("a", "c"))


def test_the_fullest_part_compares_nobody_on_what_others_have_not_met():
    one = np.array([0.5])
    done = {"a": "xyz", "b": "xyz", "c": "xy", "d": "z", "e": ""}
    scores = {(method, task): one for method, tasks in done.items() for task in tasks}
    table = Suite(methods=[*"edcba"], tasks=[*"wxyz"], scores=scores)
    part = table.fullest()
    assert (part.methods, part.tasks) == ([*"cba"], ["x", "y"]), "three by two; of equal parts the one of more methods"
    assert part.shared == ["x", "y"]
    alone = Suite(methods=["a", "b"], tasks=["x"], scores={("a", "x"): one}).fullest()
    assert alone.methods == [] and alone.tasks == []


def test_improvement_and_profile_are_those_of_the_protocol():
    found = suite()
    per_task = []
    for task in ("x", "y"):
        pairs = itertools.product(found.scores["a", task], found.scores["b", task])
        per_task.append(np.mean([1.0 if x > y else 0.5 if x == y else 0.0 for x, y in pairs]))
    assert found.beats("a", "b") == pytest.approx(np.mean(per_task))
    assert found.beats("a", "b") + found.beats("b", "a") == pytest.approx(1.0)
    shares = found.profile("a", np.array([-1.0, 0.3, 0.6, 0.9, 1.0]))
    assert shares == pytest.approx([1, 5 / 6, 3 / 6, 1 / 6, 0])


def test_the_best_of_a_task_are_those_whose_seeds_meet():
    assert suite().best("x") == {"a", "b"}, "a seed of b is above the worst of a"
    assert suite().best("y") == {"a"}
    nothing = Suite(methods=["a"], tasks=["x"], scores={("a", "x"): np.array([-0.1, 0.0])})
    assert nothing.best("x") == set(), "chance is nobody's best"


def test_a_heat_map_has_every_number_and_heading():
    shown = HeatMap(
        title="A & B",
        rows=["one", "two <2>"],
        columns=["x", "y"],
        cells=[[Cell(0.93, "93", bold=True), Cell(None, "failed")], [Cell(0.1, "10", marked=True)] * 2],
        feet=["4", "-"],
        orange=[0],
        groups=[("early", 1), ("late", 1)],
        bars=[Bar(0.5, 0.4, 0.6), None],
        bar="IQM",
        caption=["below"],
    )
    svg = heat_map_svg(shown)
    assert {"A & B", "one", "two <2>", "x", "93", "failed", "10", "4", "early", "IQM", "50", "below"} <= set(texts(svg))
    assert svg.count(f"fill: {ORANGE}") == 1, "one foot"
    assert svg.count(f"stroke: {COLOURS[1]}") == 2, "two frames"
    assert svg == heat_map_svg(shown), "the same file every time"
    assert colour(-3.0) == colour(0.0) != colour(1.0) == colour(7.0)


def test_level_curves_shade_the_levels_beyond_training():
    panel = {"title": "delay", "levels": ["1", "2", "4"], "score": [1, 0.5, 0.1], "chance": 0.1}
    interval = {"low": [1, 0.4, 0.0], "high": [1, 0.6, 0.2]}
    svg = level_curves_svg([Panel(**panel, **interval, trained=2, others=[[0.3, 0.3, 0.3]])])
    assert {"delay", "1", "2", "4"} <= set(texts(svg)) and "#c3c9d1" in svg
    assert "#f3f5f7" in svg and svg != level_curves_svg([Panel(**panel, **interval, trained=3)])
    for number in (1, 2, 3):  # beside the last of three is no empty panel
        assert (
            level_curves_svg([Panel(**panel, **interval, trained=2)] * number).count("matplotlib.axis_") == 2 * number
        )


def test_text_can_be_read_on_every_colour_of_a_heat_map():
    def luminance(rgb):
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    ink = luminance([int(INK[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    for value in np.linspace(0, 1, 51):
        cell = luminance(colour(value))
        contrast = 1.05 / (cell + 0.05) if needs_white_text(colour(value)) else (cell + 0.05) / (ink + 0.05)
        assert contrast > 4, value


def test_the_worst_of_many_methods_share_an_entry_of_the_legend():
    curves = {f"method {place}": np.array([1.0, 1 - place / 20]) for place in range(len(COLOURS) + 3)}
    found = texts(profile_svg("Share", np.array([0.0, 1.0]), curves))
    assert f"method {len(COLOURS) - 1}" in found and "3 others" in found
    assert f"method {len(COLOURS)}" not in found


def test_a_profile_names_every_method_the_highest_first():
    curves = {"low": np.array([0.5, 0.0]), "high": np.array([1.0, 0.5])}
    found = texts(profile_svg("Share", np.array([0.0, 1.0]), curves))
    assert found.index("high") < found.index("low")
