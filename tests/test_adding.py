"""What CONTRIBUTING promises: to add something is one file (or folder) and two lines, an import and an entry.

A copy of the library gets a core, a world, an agent, a trainer and a recipe, and is asked where it shows them.
"""

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from recollect.cores import CORES

ROOT = Path(__file__).parents[1]
RENAMED = {
    "leaky": "guide_leaky",
    "LeakyMemory": "GuideLeaky",
    "two_arms": "guide_arms",
    "two-arms": "guide-arms",
    "TwoArms": "GuideArms",
    "TWO_ARMS": "GUIDE_ARMS",
}


def guide(page):
    """The code of a guide, by the place that its first line names.

    Its names are changed, so that these tests also pass where somebody has followed the guide.
    """
    text = (ROOT / "docs" / page).read_text()
    for name, other in RENAMED.items():
        text = text.replace(name, other)
    return dict(reversed(found) for found in re.findall(r"```python\n(# (\S+\.py).*?)```", text, re.DOTALL))


def parted(files):
    """The guide's core without the config, which has its own file in the library."""
    place = "src/recollect/cores/guide_leaky/core.py"
    text = re.sub(r"@dataclass.*?\n\n\n(?=class GuideLeaky\()", "", files[place], count=1, flags=re.DOTALL)
    config = "import MemoryCore, companion\nfrom recollect.cores.guide_leaky.config import GuideLeakyConfig\n"
    text = text.replace("import MemoryCore\n", config)
    plain = (
        '    reference_unroll = companion("recollect.cores.guide_leaky.reference:reference_unroll")\n\n    def __init__'
    )
    return files | {place: text.replace("    def __init__", plain)}


FILES = {
    **parted(guide("write-a-core.md")),
    **guide("write-a-world.md"),
    **{place: text.replace("steps=200", "steps=2") for place, text in guide("write-a-recipe.md").items()},
    "src/recollect/agents/plain.py": '''
from dataclasses import dataclass

from recollect.agents.config import SequenceModelConfig


@dataclass(frozen=True, kw_only=True)
class PlainModelConfig(SequenceModelConfig):
    """A plain model."""
''',
    "src/recollect/training/quiet.py": '''
from dataclasses import dataclass

from recollect.training import SupervisedConfig


@dataclass(frozen=True, kw_only=True)
class QuietConfig(SupervisedConfig):
    """Trains quietly."""
''',
}
LINES = {  # the table's file: the line that imports, the table, the line that enters
    "cores/__init__.py": (
        "from recollect.cores.guide_leaky import GuideLeakyConfig",
        "CORES",
        "guide-leaky",
    ),
    "tasks/__init__.py": (
        "from recollect.tasks.worlds.guide_arms import GuideArmsConfig as GuideArmsConfig",
        "TASKS",
        "guide-arms",
    ),
    "agents/__init__.py": ("from recollect.agents.plain import PlainModelConfig", "AGENTS", "plain"),
    "training/trainers.py": ("from recollect.training.quiet import QuietConfig", "TRAINERS", "quiet"),
    "recipes/__init__.py": ("from recollect.recipes.guide_arms import GUIDE_ARMS", "RECIPES", "guide-arms"),
}
SCRIPT = """
import json, sys
sys.path += ["docs", "benchmarks"]
import gymnasium, recollect
from recollect.agents.config import SequenceModelConfig
from recollect.benchmark import CoresBenchmark, run
from recollect.certify import certify, load
from recollect.cli import main
from recollect.config import from_json, to_json
from recollect.recipes import RECIPES, training
from recollect.recipes.table_of_contents import TABLE_OF_CONTENTS
from recollect.tasks import TASKS
from recollect.tasks.gymnasium.make import make
from recollect.training import REGISTRY, TRAINERS
from recollect.cores import CORES
import pages, report

quiet = TRAINERS["quiet"](task=TASKS["recall"](), core=CORES["guide-leaky"]())
card = certify(load("guide-leaky"), lines=("splits", "reset", "rows", "purity"), size_seed=0)
measured = run(CoresBenchmark(cores=("guide-leaky",), quick=True, output=""))
certified = main(["certify", "guide-leaky", "--lines", "reset"])
tried = main(["train", "guide-arms", "--core", "guide-leaky", "--steps", "2", "--directory", "out/run"])
trained = main(["reproduce", "guide-arms", "--root", "out", "--cores", "gru", "--seeds", "1"])
print(json.dumps({
    "list": {room: [row["key"] for row in rows()] for room, rows in TABLE_OF_CONTENTS.items()},
    "exported": [name for name in ("GuideLeaky", "GuideLeakyConfig", "PlainModelConfig") if hasattr(recollect, name)],
    "certificate": [card.core, card.passed, card.config],
    "benchmark": sorted({row.core for row in measured.rows}),
    "table": report.core_table(),
    "pages": pages.core_pages(),
    "gymnasium": make("guide-arms").reset(seed=0)[0].shape,
    "train": [type(training("guide-arms", "guide-leaky")).__name__, type(training("recall", "guide-leaky")).__name__],
    "commands": [certified, tried],
    "json": from_json(json.loads(json.dumps(to_json(quiet, REGISTRY))), TRAINERS["quiet"], REGISTRY) == quiet,
    "reproduced": trained,
    "results": open("out/docs/results.md").read(),
}))
"""


def enter(path, line, table, key):
    """Adds an import and an entry to a file that holds a table."""
    lines = path.read_text().splitlines()
    first = min(number for number, text in enumerate(lines) if text.startswith("from recollect"))
    start = next(number for number, text in enumerate(lines) if text.startswith(f"{table}: dict"))
    end = next(number for number, text in enumerate(lines) if text == "}" and number > start)
    name = re.split(r"[ ,]+", line)[-1]
    lines.insert(end, f'    "{key}": {name},')
    lines.insert(first, line)
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    for folder in ("src/recollect", "docs", "benchmarks", "results", "tests/cores", "tests/tasks", "tests/recipes"):
        skip = shutil.ignore_patterns("*.png", "rl*")  # compiled files are valid for the copies
        shutil.copytree(ROOT / folder, home / folder, ignore=skip)
    for place, text in FILES.items():
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_text(text)
    for place, (line, table, key) in LINES.items():
        enter(home / "src/recollect" / place, line, table, key)
    shutil.copy(ROOT / "pyproject.toml", home)
    for name in ("conftest.py", "tiers.py"):
        shutil.copy(ROOT / "tests" / name, home / "tests")
    return home


def python(home, *words):
    """What Python prints that finds the copy."""
    environment = os.environ | {"PYTHONPATH": str(home / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def found(home):
    return json.loads(python(home, "-c", SCRIPT).splitlines()[-1])


@pytest.mark.long
def test_the_list_shows_each(found):
    for place, (_, _, key) in LINES.items():
        room = {"training": "trainers"}.get(place.split("/")[0], place.split("/")[0])
        assert key in found["list"][room], room


@pytest.mark.long
def test_a_core_is_exported_certified_and_measured(found):
    assert found["exported"] == ["GuideLeaky", "GuideLeakyConfig", "PlainModelConfig"]
    assert found["certificate"] == ["guide-leaky", True, "GuideLeakyConfig(dim=16)"]
    assert found["benchmark"] == ["guide-leaky"]


@pytest.mark.long
def test_a_core_is_in_the_docs(found):
    assert "| `guide-leaky` | `GuideLeaky` | no paper | an average of the past | 2,048 |" in found["table"]
    page, reference = (found["pages"][f"{folder}/guide-leaky.md"] for folder in ("cores", "reference/cores"))
    assert page.startswith("# Leaky memory\n\n") and "<!-- recollect:settings guide-leaky -->\n" in page
    assert reference.startswith("# Leaky memory\n\n") and "](../../cores/guide-leaky.md)" in reference
    assert "::: recollect.cores.guide_leaky.core\n" in reference
    assert "::: recollect.cores.guide_leaky.reference\n" in reference


@pytest.mark.long
def test_a_world_can_be_trained_in_and_is_a_gymnasium_environment(found):
    assert found["gymnasium"] == [2]
    assert found["train"] == ["ImpalaConfig", "SupervisedConfig"]


@pytest.mark.long
def test_commands_know_what_is_newer_than_their_help(found):
    assert found["commands"] == [0, 0]


@pytest.mark.long
def test_a_trainer_is_written_and_read(found):
    assert found["json"]


@pytest.mark.long
def test_a_recipe_is_reproduced(found):
    assert found["reproduced"] == 0
    assert "### Two arms (lite scale)" in found["results"] and "| gru |" in found["results"]


@pytest.mark.long
def test_what_the_guides_write_passes_the_contract_tests(home):
    rooms = ["cores/test_contract.py", "cores/test_references.py", "tasks/test_worlds.py", "recipes/test_recipes.py"]
    words = ["-n", "0", "-p", "no:cacheprovider", "-k", "guide", *(f"tests/{room}" for room in rooms)]
    printed = python(home, "-m", "pytest", *words)
    for room in rooms:
        assert f"tests/{room} ." in printed


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs/pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_core_of_ours_has_a_page(pages):
    texts = pages.core_pages()
    for key, config in CORES.items():
        for line in (f"::: {pages.equations(config)}\n", f"<!-- recollect:settings {key} -->\n"):
            assert any(line in text for text in texts.values()), key
    for folder in ("cores", "reference/cores"):
        written = {f"{folder}/{path.name}" for path in (ROOT / "docs" / folder).glob("*.md")}
        assert written - set(texts) <= {"cores/index.md"}, "a page that no core has"


@pytest.mark.parametrize("key", CORES)
def test_settings_and_deviations_of_a_core_are_shown(pages, key):
    rows = pages.settings(key).splitlines()[2:]
    assert len(rows) == len(dataclasses.fields(CORES[key]))
    for row, field in zip(rows, dataclasses.fields(CORES[key]), strict=True):
        assert row.startswith(f"| `{field.name}` |") and not row.endswith("|  |"), "without a meaning"
    told, source = pages.differs(key), importlib.import_module(pages.equations(CORES[key])).__doc__
    words = re.sub(r"\W+", " ", re.sub(r":\w+:", "", source.partition("\nDiffers:")[2]))
    assert told and words.strip().lower().startswith(re.sub(r"\W+", " ", told).strip().lower())
    assert told[0] == told[0].upper() and "\n    - " not in told, "a sentence, or a list of one level"


def test_every_table_of_results_is_on_one_page(pages):
    shown = list(pages._shown_tables())
    assert len(shown) == len(set(shown)) and shown.count(pages.REST) == 1
    rest = pages.on_page_markdown(
        f"<!-- recollect:table {pages.REST} -->", SimpleNamespace(file=SimpleNamespace(src_uri="results/beyond.md"))
    )
    for name, (title, _) in pages.tables().items():
        assert name in shown or f"## {title}\n" in rest, name


def test_a_folded_table_says_how_many_rows_its_parts_have(pages, monkeypatch):
    part = "| a | b |\n|---|---:|\n| 1 | 2 |\n| 3 | 4 |"
    monkeypatch.setattr(pages, "tables", lambda: {"x": ("X", f"About.\n\n**one**\n\n{part}\n\n**two**\n\n{part}")})
    assert "<summary>4 rows</summary>" in pages.table("x")


def test_entries_of_the_log_unfold(pages):
    text = (ROOT / "docs/log.md").read_text()
    folded = pages.folded_log(text)
    assert folded.count("<details ") == folded.count("</details>") == len(re.findall(r"^## ", text, re.MULTILINE))
    assert "\n## " not in folded


def test_roles_of_docstrings_are_not_shown_raw(pages):
    place = SimpleNamespace(url="reference/layers/")
    link = '<autoref identifier="recollect.{}" optional><code>{}</code></autoref>'
    for told, shown in {
        ":meth:<code>World.oracle</code>": "<code>World.oracle</code>",
        ":func:<code>~recollect.state.detach</code>": link.format("state.detach", "detach"),
        ":mod:<code>recollect.cores.tlb.core</code>": link.format("cores.tlb.core", "tlb.core"),
        "docs/log.md": '<a href="../../log/">log</a>',
        "<code>docs/log.md</code>": "<code>docs/log.md</code>",
    }.items():
        assert pages.on_page_content(f"<p>See {told}.</p>", page=place) == f"<p>See {shown}.</p>"
