"""The worlds' names in Gymnasium's registry.

    import recollect  # registers
    env = gymnasium.make("recollect/TMaze-v0", length=20)
    envs = gymnasium.make_vec("recollect/Ballet-2-delay16-v0", num_envs=16)

An id names a world and its difficulty; more keywords are fields of the world's config. Entries name their classes as
text, so that registering does not import torch.

Ids of others are looked up here too: a mistyped one is found before torch is imported.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from recollect.lazy import gymnasium

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

NAMESPACE = "recollect"
BABYAI = f"{NAMESPACE}/BabyAI-v0"
"""Levels of BabyAI, scored by success; with the keyword ``levels``."""
_MAKE = "recollect.tasks.gymnasium.make"
MEMORY_GYM = "pip install --no-deps memory-gym && pip install pygame-ce"
"""Its own requirements pin old versions of gymnasium and pygame."""
HOMES = {
    "ALE/": ("ale_py", "pip install ale-py"),
    "MiniGrid-": ("minigrid", "pip install minigrid"),
    "BabyAI-": ("minigrid", "pip install minigrid"),
    BABYAI: ("minigrid", "pip install minigrid"),
    "popgym-": ("popgym", "pip install popgym"),
    "MortarMayhem": ("memory_gym", MEMORY_GYM),
    "MysteryPath": ("memory_gym", MEMORY_GYM),
    "SearingSpotlights": ("memory_gym", MEMORY_GYM),
    "Endless-": ("memory_gym", MEMORY_GYM),
}
"""Package that registers the ids with a prefix, and how to get it."""
OLD_ATARI = re.compile(r"(\w+?)(NoFrameskip|Deterministic)?-v[04]")
"""Ids from before ale-py had a namespace."""


def ids() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every id without its namespace, and the keywords it stands for: key of the TASKS table, fields of the config."""
    yield "TMaze-v0", {"task": "t-maze"}
    yield "TMazeActive-v0", {"task": "t-maze", "active": True}
    yield "VisualMatch-v0", {"task": "visual-match"}
    yield "VisualMatch-4-v0", {"task": "visual-match", "choices": 4}
    for dancers in range(1, 9):
        for delay in (16, 48):
            fields = {"dancers": (dancers,), "delays": (delay,)}
            yield f"Ballet-{dancers}-delay{delay}-v0", {"task": "ballet", **fields}
    yield "WordLearning-v0", {"task": "word-learning"}
    for distractors in (1, 2):
        fields = {"distractor_phases": (distractors,)}
        yield f"WordLearning-distractors{distractors}-v0", {"task": "word-learning", **fields}
    yield "ObjectPermanence-v0", {"task": "object-permanence"}
    yield "StreetLearn-v0", {"task": "street-learn"}
    yield "Catch-v0", {"task": "catch"}
    yield "CatchBlackout-v0", {"task": "catch", "blackout": 9}
    yield "Track-v0", {"task": "track"}
    yield "KeyDoor-v0", {"task": "key-door"}
    yield "GoalShownOnce-v0", {"task": "goal-shown-once"}
    yield "OrderShownOnce-v0", {"task": "order-shown-once"}
    yield "CoveredObjects-v0", {"task": "covered-objects"}


def register() -> None:
    """Add the worlds to Gymnasium's registry. Does nothing the second time."""
    for name, keywords in ids():
        full = f"{NAMESPACE}/{name}"
        if full not in gymnasium.registry:
            # The world cuts its episodes itself and checks its actions: no wrappers on top.
            gymnasium.register(
                id=full,
                entry_point=f"{_MAKE}:make",
                vector_entry_point=f"{_MAKE}:make_vector",
                kwargs=keywords,
                order_enforce=False,
                disable_env_checker=True,
            )

    if BABYAI not in gymnasium.registry:
        gymnasium.register(
            id=BABYAI,
            entry_point="recollect.tasks.gymnasium.babyai:BabyAI",
            order_enforce=False,
            disable_env_checker=True,
        )


class RegisterOnImport:
    """Finder that calls ``register`` after Gymnasium is imported, so that ``import recollect`` need not import it."""

    def __init__(self) -> None:
        self._searching = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return Gymnasium's own spec, whose loader also registers the worlds; None for every other module."""
        if fullname != "gymnasium" or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                register()

            spec.loader.exec_module = execute_and_register
        return spec


def register_on_import() -> None:
    """Register the worlds now where Gymnasium is imported, else as soon as it is."""
    if "gymnasium" in sys.modules:
        register()
    elif not any(isinstance(finder, RegisterOnImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, RegisterOnImport())


def entry(name: str) -> EnvSpec:
    """Return the entry of an id in Gymnasium's registry, after importing the package that registers it.

    Raises:
        ValueError: that package is missing, or there is no such id.
    """
    for prefix, (package, remedy) in HOMES.items():
        if name.startswith(prefix):
            try:
                importlib.import_module(package)
            except ImportError:
                raise ValueError(f"id={name!r} needs the package {package}: {remedy}") from None
    if OLD_ATARI.fullmatch(name) and name not in gymnasium.registry:
        with contextlib.suppress(ImportError):
            importlib.import_module("ale_py")
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        reason = str(error).rstrip(".")
        near = "" if "Did you mean" in reason else _game(name)
        raise ValueError(f"id={name!r}: {reason}{near}") from None


def _game(name: str) -> str:
    """Suggest the game of Atari that was meant, as ``". Did you mean: `ALE/Pong-v5`?"``; an empty string where none
    was.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("ale_py")
    games = {full.lower(): full for full in gymnasium.registry if full.startswith("ALE/")}
    title = re.sub(r"(NoFrameskip|Deterministic)?(-v\d+)?$", "", name.rpartition("/")[2]).lower()
    near = difflib.get_close_matches(f"ale/{title}-v5", games, n=1, cutoff=0.9)
    return f". Did you mean: `{games[near[0]]}`?" if near else ""
