"""Install hints in code and docs name packages that are meant: `recollect` on the package index is another project."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
ELSEWHERE = {
    "memory-gym", "pygame-ce", "popgym",  # environments that need an old NumPy or a window
    "ocatari", "opencv-python", "lerobot", "wandb", "datasets", "pillow",
}  # fmt: skip
"""Packages that hints name and no extra installs."""
SUFFIXES = {".py", ".md", ".toml", ".txt", ".yml", ".html", ".js", ".sh", ".cpp"}


def name_of(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


KNOWN = {name_of(requirement) for group in (PROJECT["dependencies"], *EXTRAS.values()) for requirement in group}


def texts():
    """Every text of the repository that may hold a hint, without the tests, by its path."""
    files = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml")]
    for folder in ("src", "docs", "plugins", "examples", "benchmarks", ".ci", ".github"):
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES and path.is_file()]
    return {path.relative_to(ROOT): path.read_text(errors="replace") for path in files if path.is_file()}


def requirements(text):
    """What each `pip install` of a text installs: the words behind it, up to the end of the command."""
    for command in re.split(r"pip install +", text)[1:]:
        line = re.match(r"(?:(?! {2,})[^\n`#])*", command)[0].replace("\\", "")
        line = re.sub(r"-c +\S+", "", line)
        for word in re.findall(r"'[^']*'|\"[^\"]*\"|[^\s'\"]+", line):
            clean = word.strip("'\"").rstrip(".,:;)")
            if clean in ("then", "and", "or") or not re.match(r"[\w.{-]", clean):
                break
            if not clean.startswith(("-", "{")):  # an option, or a name that the code fills in
                yield clean
            if word.strip("'\"") != clean:  # the end of a clause
                break


def wrong_with(requirement):
    """Why a hint must not name this; None for a good one."""
    name, _, rest = requirement.partition("[")
    extras = [part.strip() for part in rest.partition("]")[0].split(",") if part.strip("{ ")]
    if name.startswith(".") or name == PROJECT["name"]:
        if name.startswith("./") and not (ROOT / name).is_dir():
            return "there is no such folder"
        unknown = [extra for extra in extras if extra not in EXTRAS and not extra.startswith("{")]
        return f"there is no extra {unknown[0]}" if unknown and not name.startswith("./") else None
    if name_of(name) == "recollect":
        return f"that is another project: name {PROJECT['name']}"
    return None if name_of(name) in KNOWN | ELSEWHERE else "no extra has this package"


def test_the_distribution_is_not_called_as_the_other_project():
    assert PROJECT["name"] == "recollect-torch"
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert (
        "The distribution is `recollect-torch`; `recollect` on the Python package index is another project." in readme
    )


def test_every_install_hint_names_a_package_that_is_meant():
    found = {(path, one) for path, text in texts().items() for one in requirements(text)}
    assert len(found) > 25, "hints are found"
    assert {one for _, one in found} >= {"recollect-torch[plots]", ".[video,plots]", "ale-py", "minigrid"}
    wrong = sorted(f"{path}: pip install {one}: {why}" for path, one in found if (why := wrong_with(one)))
    assert not wrong, "\n".join(wrong)


def test_no_text_gives_the_other_project_extras():
    for path, text in texts().items():
        assert not re.search(r"(?<![\w./-])recollect\[[a-z]", text), f"{path}: its name is {PROJECT['name']}"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("run pip install recollect", "recollect"),
        ("pip install 'recollect[live]'", "recollect[live]"),
        ("`pip install recollect-torch[plot]`", "recollect-torch[plot]"),
        ("$ pip install '.[vidoe]'", ".[vidoe]"),
        ("pip install --no-deps memory-gym && pip install minigird", "minigird"),
        ("pip install -q pyarow, or use npz", "pyarow"),
    ],
)
def test_wrong_hints_are_found(line, wrong):
    assert [one for one in requirements(line) if wrong_with(one)] == [wrong]
