"""The house rules that a machine can check (the import order is lint-imports' work)."""

import ast
import dataclasses
import inspect
import itertools
import re
from pathlib import Path

import pytest

import recollect
from recollect.cores import CORES

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_short_and_named_for_what_they_hold(path):
    assert len(path.read_text().splitlines()) <= 500
    assert path.stem not in {"utils", "util", "common", "helpers", "misc"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_functions_fit_on_a_screen(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 70, f"{node.name} has {node.end_lineno - node.lineno + 1} lines"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_private_interfaces_of_torch_are_used_in_ops_only(path):
    used = re.findall(r"\btorch\._[a-zA-Z]\w*|\btorch\.ops\.\w+", path.read_text())
    assert not used or path.parent.name == "ops", f"{used}: put them behind a function of recollect/ops"


def test_every_public_name_is_exported_and_documented():
    for name in recollect.__all__:
        assert inspect.getdoc(getattr(recollect, name)), f"recollect.{name} has no docstring"


@pytest.mark.parametrize("key", CORES)
def test_every_core_is_at_home(key):
    config = CORES[key]
    module = inspect.getmodule(config)
    core = type(config().build(8))
    assert re.search(r"^Papers?:", module.__doc__, re.MULTILINE), f"{module.__name__} does not name its paper"
    assert re.search(r"^Differs:", module.__doc__, re.MULTILINE), f"{module.__name__} does not list its deviations"
    assert f"{core.__name__}Config" == config.__name__
    assert core.__name__ in recollect.__all__ and config.__name__ in recollect.__all__
    assert (ROOT / "tests/cores/samples" / f"{key.replace('-', '_')}.py").exists()
    assert f"::: {module.__name__}" in "".join(page.read_text() for page in (ROOT / "docs/cores").glob("*.md"))
    assert f"`{key}`" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("key", CORES)
def test_configs_are_small_frozen_and_explained(key):
    config = CORES[key]
    fields = dataclasses.fields(config)
    assert config.__dataclass_params__.frozen and len(fields) <= 12
    explained = set()
    for cls in config.__mro__:
        if dataclasses.is_dataclass(cls):
            body = ast.parse(inspect.getsource(cls)).body[0].body
            for node, doc in itertools.pairwise(body):
                is_text = isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
                if isinstance(node, ast.AnnAssign) and is_text:
                    explained.add(node.target.id)
    assert {field.name for field in fields} <= explained


def test_the_readme_snippets_run():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_guide_to_writing_a_core_works():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/write-a-core.md").read_text(), re.DOTALL)
    scope = {}
    exec(compile(blocks[0], "write-a-core.md", "exec"), scope)
    from recollect.certify import certify

    core = scope["LeakyMemory"](scope["LeakyMemoryConfig"](dim=4), 8)
    card = certify(core, lines=("splits", "reset", "poison", "future", "rows", "purity", "export"))
    assert card.passed
