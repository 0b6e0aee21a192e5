import json
import re
from dataclasses import replace

import numpy as np
import pytest

from recollect.comparison.table_pictures import COLOURS
from recollect.config import to_json
from recollect.cores import GENERAL_CORES
from recollect.recipes.memory_suite import COLUMNS, FIRST, MEMORY_SUITE, ROWS, cell, label, memory_suite_table
from recollect.recipes.recall import OPTIMIZERS
from recollect.recipes.reproduce import reach_of, write_tables
from recollect.training import REGISTRY


def test_every_core_meets_every_task():
    runs = MEMORY_SUITE.rows("lite")
    assert {core for core, _ in ROWS.values()} == GENERAL_CORES.keys()
    assert len(runs) == len(COLUMNS) * len(ROWS) == len({run.label for run in runs})
    seconds = {column.key: column.seconds for column in COLUMNS}
    assert max(seconds.values()) <= 240, "four minutes of one core a cell"
    assert len(ROWS) * sum(seconds.values()) <= 7.5 * 3600, "one seed of the table in seven and a half hours"
    for run in runs:
        key = next(key for key in sorted(seconds, key=len, reverse=True) if run.label.startswith(key))
        assert run.config.fit.processor_seconds == seconds[key], "the same compute for all"
        spec = run.config.trained_on.spec
        assert spec.chance < run.config.fit.stop_score < spec.oracle


def test_what_is_run_first_says_most():
    rows = [run.label for run in MEMORY_SUITE.rows("lite")]
    begun = [label(row, column) for column in COLUMNS for row in FIRST]
    assert rows[: len(begun)] == begun, "a column of the first rows, then the next column"
    later = [row for row in ROWS if row not in FIRST]
    assert rows[len(begun) :] == [label(row, column) for row in later for column in COLUMNS]


def test_worlds_are_imitated_with_the_lessons_of_the_study():
    for column in COLUMNS:
        taught = {row: cell(row, column) for row in ROWS}
        if column.how != "imitated":
            assert all(config.teacher_description is None for config in taught.values())
            continue
        assert all(config.teacher_description.startswith("imitated ") for config in taught.values())
        assert taught["hcam"].core.reading.chunk_gradients == "call"
        helped = {
            row: [name for name in config.training_aids if name.startswith("attention")]
            for row, config in taught.items()
        }
        assert helped["hcam"] and helped["transformer-xl"] == helped["causal-transformer"] == ["attention targets"]
        assert not helped["lstm"]
        assert taught["lstm"].loss.imitation.steps == taught["lstm"].fit.steps, "imitation to the end"


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.key)
def test_only_the_memory_differs_in_a_column(column):
    def base(row):
        config = cell(row, column)
        other = {"core": None} | ({"agent": None} if column.own else {})
        if column.imitation is not None:  # targets for attention are for who attends to the past
            supervision = replace(config.loss.supervision, attention_cost=0.0, inside=False)
            other["loss"] = replace(config.loss, supervision=supervision)
        return str({**vars(config), **other})

    bases = {base(row) for row in ROWS if row not in OPTIMIZERS}
    assert len(bases) == 1, "learning rate, batch and agent are the same for every row"


def test_every_cell_has_about_the_same_size():
    counts = {row: sum(p.numel() for p in cell(row, COLUMNS[0]).core.build(64).parameters()) for row in ROWS}
    assert min(counts.values()) >= 65_000 and max(counts.values()) <= 105_000, counts


def test_the_chunks_outnumber_those_that_are_read():
    core = cell("hcam", COLUMNS[0]).core
    assert core.top_k < core.num_chunks
    assert cell("transformer-xl, full window", COLUMNS[0]).core.memory_len > 8 * core.memory_len


def write(root, row, column, seed, share, **more):
    spec = (column.where or column.config("hcam").trained_on).spec
    score = spec.chance + share * (spec.oracle - spec.chance)
    test = {
        "score": score,
        "correct": [score] * 8,
        "asked": [1] * 8,
        "chance": spec.chance,
        "paper": "-",
    }
    file = {
        "recipe": "memory-suite", "scale": "lite", "label": label(row, column), "row": row, "core": ROWS[row][0],
        "paper": "-", "seed": seed, "command": "c", "commit": "abc", "hardware": {"accelerator": "GPU"},
        "status": "ok", "error": None, "seconds": 60.0, "tests": {"": test}, **more,
    }  # fmt: skip
    folder = root / "results" / "memory-suite"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{file['label']}-seed{seed}.json").write_text(json.dumps(file))


def shown(row):
    return re.sub(", (.*)", r" (\1)", row)


def test_the_page_orders_rows_and_gives_every_empty_cell_its_reason(tmp_path):
    first, second, third = COLUMNS[:3]
    for seed in (0, 1, 2):
        for place, row in enumerate(ROWS):
            write(tmp_path, row, first, seed, 0.9 if row == "tlb" else 0.01 * place + 0.001 * seed - 0.004)
            write(tmp_path, row, second, seed, 0.8 if row == "tlb" else 0.1)
    write(tmp_path, "hcam", third, 0, 0.97)
    write(tmp_path, "gru", third, 0, 0.0, status="failed", error="NaN in the loss at step 7")
    write_tables(MEMORY_SUITE, tmp_path)
    page = (tmp_path / "docs" / "memory-suite.md").read_text()
    names = re.findall(r"^\| ([a-z][\w() -]*) \|", page.partition("## Scores")[2].partition("## Empty")[0], re.M)
    assert names[0] == "tlb" and set(names) == set(map(shown, ROWS))
    best = next(line for line in page.splitlines() if line.startswith("| tlb |"))
    assert best.count("**") == 4, "bold in both columns"
    assert f"{np.mean([0.9, 0.8]):.2f} (" in best and "| 100 % (100 to 100) |" in best
    empty = page.partition("## Empty cells")[2].partition("## How")[0]
    assert f"| {third.title}, {third.how} | gru | failed: NaN in the loss at step 7 |" in empty
    missing = next(line for line in empty.splitlines() if line.startswith(f"| {third.title}, {third.how} | tlb;"))
    assert "lstm" in missing and "hcam" not in missing and missing.endswith("| not run yet |")
    assert f"| {COLUMNS[-1].title}, {COLUMNS[-1].how} | all above | not run yet |" in empty
    assert first.title not in empty
    picture = (tmp_path / "docs" / "assets" / "memory-suite.svg").read_text()
    assert "IQM over 2 full columns" in picture and ">97<" in picture and ">failed<" in picture
    assert ">0<" in picture and ">-0<" not in picture
    for name in ("memory-suite-beats", "memory-suite-profile"):
        assert f"](assets/{name}.svg)" in page and (tmp_path / "docs" / "assets" / f"{name}.svg").is_file()
    assert "| tlb |" in (tmp_path / "docs" / "results.md").read_text()
    assert "| tlb | **" in page and page.count(" - |") > 12 and page.count("| not run yet |") >= 6


def test_what_one_seed_solved_and_another_did_not_begin_is_told_seed_by_seed(tmp_path):
    for seed, share in enumerate((1.0, 0.05, 0.5)):
        write(tmp_path, "tlb", COLUMNS[0], seed, share)
        write(tmp_path, "hcam", COLUMNS[0], seed, 0.4 + share / 5)
    write_tables(MEMORY_SUITE, tmp_path)
    page = (tmp_path / "docs" / "memory-suite.md").read_text()
    assert "| - | tlb (100, 5, 50); hcam (50) | - |" in page


def test_a_table_that_is_not_full_compares_the_rows_that_are(tmp_path):
    for column in COLUMNS[:3]:
        for place, row in enumerate(FIRST):
            write(tmp_path, row, column, 0, 0.9 - 0.2 * place, helps=["attention targets"] if row == "hcam" else [])
    write(tmp_path, "gru", COLUMNS[0], 0, 1.0)
    write_tables(MEMORY_SUITE, tmp_path)
    page = (tmp_path / "docs" / "memory-suite.md").read_text()
    assert "over the 3 tasks that all 4 compared rows have run, each of which counts the same, " in page
    rows = re.findall(r"^\| ([a-z][\w() -]*) \|", page.partition("## Scores")[2].partition("*chance*")[0], re.M)
    assert rows[:4] == list(map(shown, FIRST)) and set(rows) == {*map(shown, FIRST), "gru"}
    waiting = next(line for line in page.splitlines() if line.startswith("Rows of which nothing is run yet: "))
    assert all(row in waiting for row in set(map(shown, ROWS)) - set(rows)), (
        "a row without any run is named below the table"
    )
    line = {name: next(line for line in page.splitlines() if line.startswith(f"| {name} |")) for name in rows}
    assert line["hcam"].endswith("| 0.90 | 100 % |") and line["memoryless"].endswith("| 0.30 | |")
    assert line["gru"].endswith("| - | | |"), "one column says nothing about the others"
    assert "attention targets (hcam)" in page and "`mott`, `spatio-temporal`, `timesformer`" in page
    assert "memory-suite-beats.svg" in page


def test_training_aids_are_those_of_the_config_where_the_file_is_older():
    column = next(column for column in COLUMNS if column.key == "inference")
    result = {"label": label("hcam", column), "core": "hcam", "seed": 0, "status": "ok", "helps": [], "taught_by": None}
    result["config"] = to_json(cell("hcam", column), REGISTRY)
    assert "| inference, AC | supervised | 150 | tied start |" in memory_suite_table([result]).imitation()


def test_the_page_says_task_by_task_who_solves_it(tmp_path):
    first, second = COLUMNS[:2]
    for row, share in (("hcam", 1.0), ("tlb", 0.92), ("gru", 0.6), ("lstm", 0.16), ("memoryless", -0.02)):
        write(tmp_path, row, first, 0, share)
    write(tmp_path, "gru", second, 0, 0.14)
    write_tables(MEMORY_SUITE, tmp_path)
    page = (tmp_path / "docs" / "memory-suite.md").read_text()
    table = page.partition("## Task by task")[2].partition("## Scores")[0]
    assert "| recall, supervised | 14 | hcam; tlb | gru (60); lstm (16) | memoryless |" in table
    assert f"| {second.title}, supervised | 111 | - | - | gru |" in table
    assert COLUMNS[2].title not in table, "nothing is said where nothing was run"


def test_the_page_says_where_the_order_of_the_papers_holds(tmp_path):
    first, second, third, fourth = COLUMNS[:4]
    shares = {"hcam": (0.9, 0.5, 0.2), "transformer-xl": (0.5, 0.5, 0.6), "lstm": (0.5, 0.4, 0.6)}
    for row, found in shares.items():
        for column, share in zip((first, second, third), found, strict=True):
            write(tmp_path, row, column, 0, share)
    write(tmp_path, "hcam", fourth, 0, 1.0)
    write_tables(MEMORY_SUITE, tmp_path)
    page = (tmp_path / "docs" / "memory-suite.md").read_text()
    lines = page.partition("## Does the order")[2].partition("## Scores")[0].splitlines()
    assert f"| hcam over transformer-xl | {first.title} | {second.title} | {third.title} |" in lines
    assert f"| transformer-xl over lstm | {second.title} | {first.title}; {third.title} | - |" in lines
    assert not any("memoryless |" in line or "full window" in line for line in lines if line.startswith("|"))
    assert fourth.title not in "".join(lines), "one of a pair says nothing"


def test_a_table_with_one_run_has_a_page_without_what_cannot_be_said(tmp_path):
    write(tmp_path, "hcam", COLUMNS[0], 0, 1.0)
    write_tables(MEMORY_SUITE, tmp_path)
    page = (tmp_path / "docs" / "memory-suite.md").read_text()
    assert "memory-suite-beats" not in page and "nan" not in page and "IQM:" not in page
    assert "## Does the order" not in page
    assert page.partition("## Scores")[2].partition("*chance*")[0].splitlines()[6].startswith("| hcam |"), "first"
    assert "| hcam | **1.00** (1.00 to 1.00) |" in page


def test_every_table_says_how_a_column_is_learned_and_who_taught(tmp_path):
    column = next(column for column in COLUMNS if column.key == "streets")
    write(tmp_path, "hcam", column, 0, 0.5, config=to_json(cell("hcam", column), REGISTRY))
    write_tables(MEMORY_SUITE, tmp_path)
    for name in ("memory-suite.md", "results.md"):
        text = (tmp_path / "docs" / name).read_text()
        assert "| streets, imitated | " in text and "| T-maze, 70, reinforcement |" in text
    page = (tmp_path / "docs" / "memory-suite.md").read_text()
    assert re.search(r"^\| streets \| imitated \| 150 \| imitated explorer;? ?[^|]*\|$", page, re.M)


def test_seeds_that_failed_or_are_missing_beside_good_ones_are_named(tmp_path):
    first, second = COLUMNS[:2]
    for seed in (0, 1, 2):
        write(tmp_path, "gru", first, seed, 0.5)
    write(tmp_path, "gru", second, 0, 0.9)
    write(tmp_path, "gru", second, 2, 0.0, status="failed", error="NaN | at <class 'x'>")
    write(tmp_path, "lstm", second, 0, 0.9)
    write_tables(MEMORY_SUITE, tmp_path)
    fewer = (tmp_path / "docs" / "memory-suite.md").read_text().partition("## Cells with fewer seeds")[2]
    assert f"| {second.title}, supervised | gru | 1 of 3 | seed 2 failed: NaN \\| at &lt;class 'x'&gt; |" in fewer
    assert f"| {second.title}, supervised | lstm | 1 of 3 | not run yet |" in fewer
    assert f"| {first.title}, supervised |" not in fewer.partition("##")[0]


def test_a_cell_is_framed_where_the_answer_lies_beyond_the_windows(tmp_path):
    first, second = COLUMNS[:2]
    for row in ("hcam", "gru", "transformer-xl, full window"):
        write(tmp_path, row, first, 0, 0.5)
        write(tmp_path, row, second, 0, 0.5)
    assert reach_of(cell("hcam", first)) == 16 and reach_of(cell("gru", first)) is None
    write_tables(MEMORY_SUITE, tmp_path)
    picture = (tmp_path / "docs" / "assets" / "memory-suite.svg").read_text()
    assert picture.count(f"stroke: {COLOURS[1]}") == 1, (
        "a state that is carried on has no reach, a full window reaches it"
    )
    assert ">14<" in picture and ">111<" in picture, "recall lies within hcam's windows, copying beyond them"
