"""Read the result files of recipes, and compare them with the rows that they claim to be of."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.config import from_json, to_json, upgrade_json
from recollect.files import read_json, require_json_type
from recollect.recipes.base import Run
from recollect.training import REGISTRY, TrainerConfig
from recollect.training.training_aids import all_training_aids

REMEDY = "remove it; what is missing then is run again"


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Read the results in a recipe's folder, by file name.

    Raises:
        ValueError: a damaged file, or one whose name does not match its content (a copy would count as another seed).
    """
    return [read_result(path) for path in sorted(folder.glob("*-seed*.json"))]


def read_result(path: Path) -> dict[str, Any]:
    """Read the result of one run.

    Raises:
        ValueError: as :func:`read_results`.
    """
    result = read_json(path, REMEDY)
    require_json_type(result, dict, path)
    said = result.get("recipe"), f"{result.get('label')}-seed{result.get('seed')}.json"
    if said != (path.parent.name, path.name):
        raise ValueError(f"{path} holds {'/'.join(map(str, said))}, not what its name says: {REMEDY}")
    return result


def has_result(path: Path, run: Run) -> bool:
    """Return whether a file has the result of a row."""
    return path.is_file() and is_current(read_result(path), run)


def is_current(result: Mapping[str, Any], run: Run) -> bool:
    """Return whether a run ended well, and has all tests of a row and its config, on whatever device."""
    try:  # decoded first: older files lack newer fields
        config = from_json(result["config"], TrainerConfig, REGISTRY)
    except ValueError:  # an unknown field or kind
        return False
    same = replace(config, device=run.config.device) == run.config  # captions name the devices, rows do not differ
    return result["status"] == "ok" and same and run.scored.keys() <= result["tests"].keys()


def of_one_config(
    results: Sequence[Mapping[str, Any]], runs: Sequence[Run]
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Leave out results of other configs, so that the score of a row is of one, whatever its seeds and devices.

    Args:
        results: of a scale.
        runs: rows that the recipe has today; a row without a result of its config keeps those of the newest one.

    Returns:
        The results that remain, and paragraphs about the others, and about rows that are of an earlier config.
    """
    known = {run.label: _comparable(to_json(run.config, REGISTRY)) for run in runs}
    texts = [_comparable(result.get("config", {})) for result in results]
    own = set(known.values())
    now = {text: text if text in own else _comparable(_upgrade(text)) for text in set(texts)}
    configs = [now[text] for text in texts]
    chosen: dict[str, str] = {}
    for result, config in sorted(zip(results, configs, strict=True), key=lambda pair: pair[0].get("time", "")):
        label = result["label"]
        if chosen.get(label) != known.get(label, ""):
            chosen[label] = config
    kept, left = [], []
    for result, config in zip(results, configs, strict=True):
        (kept if config == chosen[result["label"]] else left).append(result)
    names = {
        "Left out, because their config is not that of their row": [
            f"{result['label']}-seed{result['seed']}" for result in left
        ],
        "Of an earlier config than the recipe has today": [
            label for label, config in chosen.items() if config != known.get(label, config)
        ],
    }
    return kept, [
        f"{what}: {', '.join(f'`{name}`' for name in sorted(found))}." for what, found in names.items() if found
    ]


def _comparable(config: Mapping[str, Any]) -> str:
    """Return a config as text, but for seed and device."""
    return json.dumps({**config, "device": "cpu", "fit": {**config.get("fit", {}), "seed": 0}}, sort_keys=True)


def _upgrade(text: str) -> dict[str, Any]:
    return upgrade_json(json.loads(text), TrainerConfig, REGISTRY)


def result_aids(result: Mapping[str, Any]) -> list[str]:
    """Return teacher and training aids of a result, from its config where it can be read, because older files lack the
    aids that were named later.
    """
    said = (result.get("taught_by"), *result.get("helps", ()))
    return list(all_training_aids(result.get("config", {}))) or [name for name in said if name]
