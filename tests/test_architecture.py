"""The house rules that a machine can check (the import order is lint-imports' work)."""

import ast
import dataclasses
import importlib
import inspect
import itertools
import re
import statistics
from pathlib import Path

import pytest

import recollect
from recollect.cores import CORES

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_files_and_functions_are_short_and_files_are_named_for_their_contents():
    for path in SOURCES:
        text, place = path.read_text(), path.relative_to(ROOT)
        assert len(text.splitlines()) <= 500, f"{place} has {len(text.splitlines())} lines"
        assert path.stem not in {"utils", "util", "common", "helpers", "misc"}, place
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                lines = node.end_lineno - node.lineno + 1
                assert lines <= 70, f"{node.name} in {place} has {lines} lines"


def test_layers_is_small_and_files_are_short_in_the_median(record_property):
    files = [path for path in SOURCES if path.stem != "__init__"]
    assert len([path for path in files if path.parent.name == "layers" and path.stem != "config"]) <= 10
    lengths = [len(path.read_text().splitlines()) for path in files]
    record_property("median lines of a source file", statistics.median(lengths))
    assert statistics.median(lengths) <= 180


def counted_nodes(tree, stem):
    """Nodes of a module, without what packages and configs name for editors alone, and without function bodies of
    configs.

    A config imports the class that it builds inside ``build``, and that class imports its config.
    """
    queue = [tree]
    while queue:
        node = queue.pop()
        yield node
        is_build = isinstance(node, ast.FunctionDef) and (node.name == "build" or stem == "config")
        for_editors = (
            stem in ("__init__", "config") and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        queue += [] if is_build or for_editors else ast.iter_child_nodes(node)


def import_graph(sources, root):
    """Imports of every module: at the top, inside functions and for type checkers alike; see ``counted_nodes``."""
    names = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in sources}
    graph = {}
    for name, path in names.items():
        found = set()
        for node in counted_nodes(ast.parse(path.read_text()), path.stem):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                package = node.module or ""
                if node.level:
                    here = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
                    package = ".".join([*here[: len(here) - node.level + 1], *filter(None, [node.module])])
                found |= {f"{package}.{a.name}" if f"{package}.{a.name}" in names else package for a in node.names}
        graph[name] = found & names.keys()
    return graph


def circles(graph):
    """Sets of modules that can all be reached from each other, of at least two modules, or one that imports itself."""
    reach = {}
    for start in graph:
        seen, queue = set(), [start]
        while queue:
            new = graph[queue.pop()] - seen
            seen |= new
            queue += new
        reach[start] = seen
    return {frozenset(b for b in reach[a] if a in reach[b]) for a in graph if a in reach[a]}


def test_no_import_goes_in_a_circle():
    assert circles(import_graph(SOURCES, ROOT / "src")) == set()


def test_a_circle_is_found_wherever_the_import_stands(tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p/__init__.py").write_text("from p import a")
    (tmp_path / "p/a.py").write_text("def f():\n    from p.b import g")
    (tmp_path / "p/b.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import c")
    (tmp_path / "p/c.py").write_text("import p.a")
    found = circles(import_graph(sorted(tmp_path.rglob("*.py")), tmp_path))
    assert found == {frozenset({"p.a", "p.b", "p.c"})}


def test_private_interfaces_of_torch_are_used_in_ops_only():
    for path in SOURCES:
        used = re.findall(r"\btorch\._[a-zA-Z]\w*|\btorch\.ops\.\w+", path.read_text())
        here = path.relative_to(ROOT)
        assert not used or path.parent.name == "ops", f"{here}: {used}: use them through a function of recollect/ops"


def test_every_public_name_is_exported_and_documented():
    for name in recollect.__all__:
        assert inspect.getdoc(getattr(recollect, name)), f"recollect.{name} has no docstring"


@pytest.mark.parametrize("key", CORES)
def test_every_core_is_at_home(key):
    config = CORES[key]
    core = type(config().build(8))
    module = inspect.getmodule(core)
    assert re.search(r"^Papers?:", module.__doc__, re.MULTILINE), f"{module.__name__} does not name its paper"
    assert re.search(r"^Differs:", module.__doc__, re.MULTILINE), f"{module.__name__} does not list its deviations"
    assert f"{core.__name__}Config" == config.__name__
    assert core.__name__ in recollect.__all__ and config.__name__ in recollect.__all__
    assert "-" not in (config.paper, config.remembers), f"{config.__name__} says nothing about itself"
    row = f"| `{key}` | `{core.__name__}` | {config.paper} | {config.remembers} |"
    assert row in (ROOT / "docs/cores/index.md").read_text(), "the table of cores is old: python benchmarks/report.py"


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


def test_the_guide_to_writing_a_world_works():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/write-a-world.md").read_text(), re.DOTALL)
    scope = {}
    for block in blocks:
        exec(compile(block, "write-a-world.md", "exec"), scope)
    assert scope["step"].is_last.all()


def test_the_guide_to_writing_a_core_works():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/write-a-core.md").read_text(), re.DOTALL)
    scope = {}
    exec(compile(blocks[0], "write-a-core.md", "exec"), scope)
    from recollect.certify import certify

    core = scope["LeakyMemory"](scope["LeakyMemoryConfig"](dim=4), 8)
    card = certify(core, lines=("splits", "reset", "poison", "future", "rows", "purity"), size_seed=0)
    assert card.passed


def test_lazily_exported_names_are_no_submodules():
    # An import of the submodule would bind its name in the package, and the export would be the module.
    for path in SOURCES:
        if path.stem == "__init__" and "attach(" in path.read_text():
            package = ".".join(path.relative_to(ROOT / "src").parent.parts)
            submodules = {p.stem for p in path.parent.iterdir()}
            exported = importlib.import_module(package).__getattr__("__all__")
            lazy = {name for name in exported if name not in vars(importlib.import_module(package))}
            assert not lazy & submodules, f"{package}: {lazy & submodules}"
