"""Share a trained model: its folder with scores, a card and a picture, in a repository of the Hugging Face Hub.

recollect.push_to_hub("runs/t-maze-hcam-seed0", "someone/t-maze-hcam")
agent = recollect.from_pretrained("someone/t-maze-hcam")
"""

import json
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from recollect.agents import hub
from recollect.agents.model_card import PICTURE, model_card
from recollect.agents.model_sources import RESULTS, read_results
from recollect.agents.saved_model import CONFIG, SavedModel, load_folder
from recollect.config import require
from recollect.evaluation.agent_videos import write_frame
from recollect.files import read_json, without_nan, write_atomically
from recollect.runs.provenance import environment
from recollect.runs.run_directory import resolve_run
from recollect.training.config import TrainerConfig, fresh_seed
from recollect.training.saved_models import load_model, resolve_folder
from recollect.training.saved_run import evaluate_run, load_config

PROVENANCE = ("command", "time", "versions", "hardware", "commit", "seed", "seconds")
"""Entries of a model's provenance that its results show."""


def push_to_hub(
    source: str | PathLike[str] | SavedModel,
    repository: str,
    *,
    best: bool = False,
    samples: int | None = None,
    private: bool | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    trust: bool = False,
) -> str:
    """Write a model with its card to a repository, which is made if it does not exist; return its address.

    Args:
        source: what :func:`recollect.load` takes, or a model in memory, which is not scored.
        repository: ``OWNER/NAME``.
        best: of a run, take the weights of its best evaluation.
        samples: fresh rows or episodes that score a model without ``results.json``; None takes the usual number, 0
            leaves the scores away.
        private: visible to its owner alone; None as the owner's account says.
        token: that may write there; None takes that of ``hf auth login``.
        endpoint: address of the hub; None takes huggingface.co, or ``HF_ENDPOINT``.
        trust: import the packages that the run's config names for its world or core.

    Raises:
        ValueError: as :func:`recollect.load` and :func:`recollect.agents.hub.upload`; the run's task is not here and
            ``samples`` is not 0.
    """
    with TemporaryDirectory() as parent:
        folder = Path(parent) / repository.rpartition("/")[2]
        write_shared_folder(source, folder, shared_as=f"hub:{repository}", best=best, samples=samples, trust=trust)
        return hub.upload(folder, repository, private=private, token=token, endpoint=endpoint)


def from_pretrained(
    repository: str,
    device: torch.device | str = "cpu",
    *,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    cache: str | PathLike[str] | None = None,
    trust: bool = False,
) -> Any:
    """Load the model of a repository, in ``eval`` mode; ``recollect.load("hub:OWNER/NAME")`` is short for it.

    Args:
        repository: ``OWNER/NAME``.
        device: of the model.
        revision: branch, tag or commit; None takes the main branch. Only a commit is sure to stay the same.
        token: that may read it; None takes that of ``hf auth login``, if there is one.
        endpoint: address of the hub; None takes huggingface.co, or ``HF_ENDPOINT``.
        cache: folder of downloads; None takes that of ``huggingface_hub``.
        trust: import modules of user-defined cores that the model names: that runs their code.

    Raises:
        ValueError: as :func:`recollect.agents.hub.download` and :func:`recollect.load`.
    """
    folder = hub.download(repository, revision=revision, token=token, endpoint=endpoint, cache=cache)
    return load_folder(folder, device, trust=trust)


def write_shared_folder(
    source: str | PathLike[str] | SavedModel,
    folder: Path,
    *,
    shared_as: str,
    best: bool = False,
    samples: int | None = None,
    trust: bool = False,
) -> None:
    """Write the model folder that is shared: with ``results.json``, ``README.md`` and, in a world, ``film.png``.

    Args:
        source: as in :func:`push_to_hub`.
        folder: to write; made if it does not exist.
        shared_as: how people will load it.
        best: as in :func:`push_to_hub`.
        samples: as in :func:`push_to_hub`.
        trust: as in :func:`push_to_hub`.
    """
    require(samples is None or samples >= 0, "samples", samples, "give 0 for no scores, or how many")
    if isinstance(source, SavedModel):
        source.save(folder)
        results: dict[str, Any] = _describe(source, folder)
    else:
        run, is_best = resolve_run(source)
        source, best = (run.path, True) if is_best else (source, best)
        model = load_model(source, best=best, trust=trust)
        model.save(folder)
        results = read_results(resolve_folder(source, best=best))
        config = None if samples == 0 and not results else load_config(source, trust=trust)
        if not results:
            results = _describe(model, folder)
        if "tests" not in results and config is not None:
            found = evaluate_run(source, samples=samples, best=best, trust=trust)
            results |= {"tests": {"": found.to_json()}, "scored_by": environment()}
        if config is not None:
            write_picture(model, config, folder)
    write_card(folder, results, shared_as)


def write_picture(model: Any, config: TrainerConfig, folder: Path) -> None:
    """Write the last frame of an episode as ``film.png``, where the model acts in a world and pillow is installed."""
    if config.has_films and find_spec("PIL"):
        write_frame(model, config.trained_on, folder / PICTURE, seed=fresh_seed(0))


def write_card(folder: Path, results: dict[str, Any], shared_as: str) -> None:
    """Write ``results.json``, and ``README.md`` from it."""
    write_atomically(folder / RESULTS, json.dumps(without_nan(results), indent=1, allow_nan=False) + "\n")
    picture = (folder / PICTURE).is_file()
    card = model_card(shared_as.rpartition(":")[2], results, source=shared_as, picture=picture)
    write_atomically(folder / "README.md", card)


def _describe(model: SavedModel, folder: Path) -> dict[str, Any]:
    """Return the results of a model that was not scored: what its folder says of it."""
    memory = read_json(folder / CONFIG, "write it again").get("core", {})
    known = {name: model.spec.run[name] for name in PROVENANCE if name in model.spec.run}
    return {
        "core": memory.get("kind", type(model).__name__),
        "task": model.spec.task or model.spec.title,
        "taught_by": model.spec.teacher,
        "steps": model.spec.run.get("step"),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **known,
    }
