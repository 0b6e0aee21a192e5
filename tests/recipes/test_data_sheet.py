import json

import numpy as np
import pytest

from recollect.cores import GENERAL_CORES
from recollect.recipes.data_sheet import DATA_SHEET, GOOD, TRAINED_ON, data_sheet, measures
from recollect.recipes.equal_sizes import SIZES, equal_core
from recollect.recipes.reproduce import write_tables
from recollect.tasks.streams.mixture import Mixture


def test_every_level_fits_the_model_that_was_trained():
    trained = data_sheet().task
    assert isinstance(trained, Mixture) and trained.tasks == TRAINED_ON
    forms = {(spec.input_dim, spec.num_classes, spec.chance) for spec in (task.spec for task in TRAINED_ON)}
    for levels in measures().values():
        assert list(levels) == sorted(levels), "easiest first"
        forms |= {(task.spec.input_dim, task.spec.num_classes, task.spec.chance) for task in levels.values()}
    assert len(forms) == 1


def test_a_level_asks_what_it_says():
    asked = measures()
    for delay, task in asked["delay"].items():
        assert task.min_blank == task.max_blank == delay and task.num_cues == 1
    for items, task in asked["items"].items():
        assert task.num_cues == items
    for share, task in asked["distractors"].items():
        assert task.distractors == share and task.max_blank == 16
    for number, task in asked["overwrites"].items():
        assert task.overwrites == number and task.num_cues == 4
    hardest = max(TRAINED_ON, key=lambda task: task.max_blank).max_blank
    assert max(asked["delay"]) >= 8 * hardest, "asked far beyond training"


def test_all_cores_have_about_the_same_size():
    assert SIZES.keys() <= GENERAL_CORES.keys()
    counts = {key: sum(p.numel() for p in equal_core(key).build(64).parameters()) for key in GENERAL_CORES}
    assert min(counts.values()) >= 65_000 and max(counts.values()) <= 100_000, counts
    assert equal_core("hcam", top_k=2).top_k == 2 and not hasattr(equal_core("gru", top_k=2), "top_k")


def result(core, seed, scores, **more):
    """A file as ``reproduce`` writes it; ``scores``: of a level, by measure."""
    generator, tests = np.random.default_rng(seed), {}
    for measure, levels in measures().items():
        for place, level in enumerate(levels):
            right = generator.binomial(4, scores(measure, place), 64)
            tests[f"{measure} {level:g}"] = {
                "score": float(right.mean() / 4), "correct": right.tolist(), "asked": [4] * 64, "chance": 1 / 17,
            }  # fmt: skip
    return {
        "recipe": "data-sheet", "scale": "lite", "label": core, "row": core, "core": core, "paper": "-", "seed": seed,
        "command": "c", "commit": "abc", "hardware": {"accelerator": "GPU"}, "status": "ok", "error": None,
        "parameters": 90_000, "state_bytes": 2048, "step_microseconds": 123.4, "seconds": 60.0, "tests": tests, **more,
    }  # fmt: skip


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "results" / "data-sheet"
    folder.mkdir(parents=True)
    files = [result("gru", seed, lambda measure, place: 1.0 if place < 3 else 0.3) for seed in (0, 1)]
    files.append(result("memoryless", 0, lambda measure, place: 1 / 17))
    files.append({**result("ttm", 0, lambda *_: 0.0), "status": "failed", "error": "NaN | at step 3", "tests": {}})
    for one in files:
        (folder / f"{one['label']}-seed{one['seed']}.json").write_text(json.dumps(one))
    pages = tmp_path / "docs" / "cores"
    pages.mkdir(parents=True)
    markers = "<!-- recollect:data-sheet-gru:begin -->\n<!-- recollect:data-sheet-gru:end -->"
    (pages / "recurrent.md").write_text(f"# GRU\n\n{markers}\n\nend\n")
    return tmp_path


@pytest.mark.long
def test_sheets_come_from_the_files_alone(root):
    write_tables(DATA_SHEET, root)
    page = (root / "docs" / "data-sheets.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| gru |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "4" and cells[3] == "16" and cells[5] == "50 %" and cells[6] == "2", "the third level of each"
    assert cells[2] == "8", "4 items of 4 bits in 2048 bytes"
    assert cells[4] == "x 0.5" and cells[7:] == ["123", "2 048", "90 000", "2"]
    assert "| memoryless | - | - | - | - | - | - |" in page
    assert "| ttm | failed: NaN | at step 3 |" in page.replace("\\|", "|")
    assert "| hcam | not run yet |" in page
    assert {path.name for path in (root / "docs" / "assets").iterdir()} == {
        "data-sheets.svg", "data-sheet-gru.svg", "data-sheet-memoryless.svg",
    }  # fmt: skip
    core = (root / "docs" / "cores" / "recurrent.md").read_text()
    assert core.startswith("# GRU\n") and core.endswith("\nend\n")
    assert "## Data sheet: `gru`" in core and "(../assets/data-sheet-gru.svg)" in core
    results = (root / "docs" / "results.md").read_text()
    assert "### Data sheets of the cores (lite scale)" in results and "| gru | 4 |" in results
    before = {path: path.read_text() for path in (root / "docs").rglob("*.*")}
    write_tables(DATA_SHEET, root)
    assert {path: path.read_text() for path in (root / "docs").rglob("*.*")} == before, "again changes nothing"


def test_one_level_that_is_missed_ends_what_is_remembered(root):
    hole = result("gru", 0, lambda measure, place: 0.2 if place == 1 else 1.0)
    (root / "results" / "data-sheet" / "gru-seed1.json").unlink()
    (root / "results" / "data-sheet" / "gru-seed0.json").write_text(json.dumps(hole))
    write_tables(DATA_SHEET, root)
    row = next(x for x in (root / "docs" / "data-sheets.md").read_text().splitlines() if x.startswith("| gru |"))
    assert row.split("|")[2].strip() == "1", f"only the first level is at least {GOOD}"
