"""A model is one folder, which needs no data set, world or trainer to be loaded.

    weights.safetensors     every parameter and buffer, also the statistics that normalise inputs and targets
    config.json             settings of the agent and of its core or encoder
    spec.json               sizes of inputs and outputs, names, units and provenance (:class:`ModelSpec`)

Nothing in a folder is executed, and no other file is read. A user-defined core is named ``package.module:Class``; its
module is imported only where it already is, or with ``trust``. Earlier versions wrote ``model.json`` instead of the two
JSON files; a model's own class still loads such a folder.
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Self, cast

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.modules import module as registration

import recollect
from recollect import agents
from recollect.agents.model_spec import ModelSpec
from recollect.config import from_json, lookup, to_json
from recollect.files import new_file, read_json, require_json_type, write_atomically

CONFIG, SPEC, WEIGHTS = "config.json", "spec.json", "weights.safetensors"
OLD_DESCRIPTION = "model.json"
SETTINGS = ("agent", "core", "encoder")  # parts of a description that are in config.json; others are in spec.json
FORMAT = 1
"""Version of the two JSON files."""
MOST_JSON = 1 << 26  # bytes of a JSON file that are read
SPARE_BYTES, SPARE_TENSORS = 1 << 28, 1000  # a module may need more than its file has: tables that are not saved
REMEDY = "give a folder that a model's save or a run wrote"


class SavedModel(nn.Module, ABC):
    """Module that is written to a folder and made again from it."""

    spec: ModelSpec = ModelSpec()
    """Names, units and provenance."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data: ``agent``, ``core`` or ``encoder``, and sizes."""

    @classmethod
    @abstractmethod
    def from_description(cls, description: Mapping[str, Any], *, trust: bool = False) -> Self:
        """Make the model that :meth:`describe` described, with new weights.

        Raises:
            ValueError: a config names an unknown core or encoder, or without ``trust`` one that must be imported.
        """

    def to_files(self, spec: ModelSpec | None = None) -> dict[str, str]:
        """Return the contents of ``config.json`` and ``spec.json``; ``spec`` replaces the model's own."""
        description = self.describe()
        config = {name: description.pop(name) for name in SETTINGS if name in description}
        config = {"format": FORMAT, "kind": _kind_of(type(self)), **config}
        about = to_json(self.spec if spec is None else spec, {}) | {"library": recollect.__version__}
        files = {CONFIG: config, SPEC: {"format": FORMAT, "sizes": description, **about}}
        return {name: json.dumps(data, indent=2) + "\n" for name, data in files.items()}

    def save(self, folder: str | PathLike[str], spec: ModelSpec | None = None) -> None:
        """Write a model folder; each file is written beside the old one, then renamed.

        Args:
            folder: is made if it does not exist.
            spec: replaces the model's own names, units and provenance.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name, text in self.to_files(spec).items():
            write_atomically(target / name, text)
        with new_file(target / WEIGHTS) as unfinished:
            safetensors.torch.save_file(independent_copies(self.state_dict()), str(unfinished))

    @classmethod
    def load(cls, folder: str | PathLike[str], device: torch.device | str = "cpu", *, trust: bool = False) -> Self:
        """Return the model of this class that :meth:`save` wrote, in ``eval`` mode.

        Raises:
            ValueError: as :func:`load_folder`, or the folder holds a model of another class.
        """
        source = Path(folder)
        if (source / OLD_DESCRIPTION).is_file() and not (source / CONFIG).is_file():
            description = _read_object(source / OLD_DESCRIPTION)
            return _build(cls, description, source, source / OLD_DESCRIPTION, trust).to(device).eval()
        model = load_folder(folder, device, trust=trust)
        if not isinstance(model, cls):
            raise ValueError(f"{source} holds a model of class {type(model).__name__}, not {cls.__name__}")
        return model


def independent_copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous copies on the CPU, as safetensors needs: it does not take shared or strided storage."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}


def load_folder(folder: str | PathLike[str], device: torch.device | str = "cpu", *, trust: bool = False) -> SavedModel:
    """Return the model of a folder, in ``eval`` mode and the dtype that it was saved in.

    Args:
        folder: that :meth:`SavedModel.save` wrote, or a checkpoint of a run.
        device: of the model.
        trust: import modules of user-defined cores that the folder names.

    Raises:
        ValueError: a file is missing, damaged, or does not fit the others; or it names something unknown, or without
            ``trust`` something that must be imported. The message has the file and the remedy.
    """
    source = Path(folder)
    if not (source / CONFIG).is_file() and (source / OLD_DESCRIPTION).is_file():
        raise ValueError(
            f"{source} is of an older version: load it with the class of its model, such as "
            "recollect.ActorCritic.load(folder), and save it again"
        )
    path = source / CONFIG
    config = _read_object(path)
    spec, sizes = _read_spec(source)
    kind = config.pop("kind", None)
    if not isinstance(kind, str):
        raise ValueError(f"{path} does not say which model it describes ('kind'): {REMEDY}")
    _require_format(config.pop("format", None), path)
    with _file_errors(path):
        cls = _class_of(lookup(agents.AGENTS, kind, "kind of model"))
    model = _build(cls, sizes | config, source, path, trust)
    model.spec = spec
    return model.to(device).eval()


def load_spec(folder: str | PathLike[str]) -> ModelSpec:
    """Return names, units and provenance of the model in a folder, without its weights.

    Raises:
        ValueError: as :func:`load_folder`.
    """
    return _read_spec(Path(folder))[0]


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder has the three files of a model."""
    return all((folder / name).is_file() for name in (CONFIG, SPEC, WEIGHTS))


def _kind_of(cls: type[SavedModel]) -> str:
    return next(key for key, config in agents.AGENTS.items() if issubclass(cls, _class_of(config)))


def _class_of(config: type) -> type[SavedModel]:
    return getattr(agents, config.__name__.removesuffix("Config"))


def _read_spec(source: Path) -> tuple[ModelSpec, dict[str, Any]]:
    """Return the spec in a folder, and the sizes of its model."""
    path = source / SPEC
    data = _read_object(path)
    _require_format(data.pop("format", None), path)
    sizes = data.pop("sizes", None)
    require_json_type(sizes, dict, path)
    with _file_errors(path):
        return from_json(data, ModelSpec, {}), cast(dict[str, Any], sizes)


def _read_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path} does not exist: {REMEDY}")
    if path.stat().st_size > MOST_JSON:
        raise ValueError(f"{path} has more than {MOST_JSON >> 20} MiB, which no model needs: {REMEDY}")
    found = read_json(path, REMEDY)
    require_json_type(found, dict, path)
    return found


def _require_format(version: Any, path: Path) -> None:
    if version != FORMAT:
        newer = isinstance(version, int) and version > FORMAT
        remedy = "install a newer recollect-torch" if newer else REMEDY
        raise ValueError(f"{path} has format={version!r}, and this version reads {FORMAT}: {remedy}")


def _build(cls: type[SavedModel], description: Mapping[str, Any], source: Path, path: Path, trust: bool) -> Any:
    """Return a model with the weights in a folder; ``path`` is the file that described it."""
    weights = source / WEIGHTS
    limit = 4 * _count_tensors(weights) + SPARE_TENSORS, 4 * weights.stat().st_size + SPARE_BYTES
    with _file_errors(path, source / SPEC if path.name == CONFIG else path), _size_limit(*limit):
        _try_sizes(cls, description, trust)
        model = cls.from_description(description, trust=trust)
    _load_weights(model, weights)
    return model


def _try_sizes(cls: type[SavedModel], description: Mapping[str, Any], trust: bool) -> None:
    """Make the model without memory for its tensors, so that sizes that no machine has are found early."""
    try:
        with torch.device("meta"):
            cls.from_description(description, trust=trust)
    except _TooLargeError:
        raise
    except Exception:
        pass


def _count_tensors(path: Path) -> int:
    if not path.is_file():
        raise ValueError(f"{path} does not exist: {REMEDY}")
    with _file_errors(path), safetensors.safe_open(str(path), "pt") as file:
        return len(file.keys())


def _load_weights(model: SavedModel, path: Path) -> None:
    with _file_errors(path):
        tensors = safetensors.torch.load_file(path)
        dtypes = Counter(tensor.dtype for tensor in tensors.values() if tensor.is_floating_point())
        for dtype, _ in dtypes.most_common(1):
            model.to(dtype)  # also tensors that are not saved, such as tables
        own = model.state_dict(keep_vars=True)
        # Modules drop names of earlier versions when they load; what is left is unknown.
        unknown = model.load_state_dict({n: x for n, x in tensors.items() if n not in own}, strict=False)[1]
    tensors = {name: tensor for name, tensor in tensors.items() if name in own}
    # Earlier versions wrote a tensor with two names under one of them.
    written = {id(own[name]) for name in tensors}
    wrong = [
        *(f"{name} is missing" for name in own if name not in tensors and id(own[name]) not in written),
        *(f"{name} is not part of the model" for name in unknown),
        *(f"{name} has shape {list(tensor.shape)}, not {list(own[name].shape)}"
          for name, tensor in tensors.items() if tensor.shape != own[name].shape),
    ]  # fmt: skip
    if wrong:
        more = f", and {len(wrong) - 2} more" if len(wrong) > 2 else ""
        raise ValueError(f"{path} does not fit the files beside it ({'; '.join(wrong[:2])}{more}): {REMEDY}")
    with _file_errors(path):
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and own[name].is_floating_point():  # some have a dtype of their own
                own[name].data = own[name].data.to(tensor.dtype)
        model.load_state_dict(tensors, strict=False)
    for name, tensor in tensors.items():
        if not torch.equal(own[name].detach(), tensor.to(own[name].dtype)) and not tensor.isnan().any():
            raise ValueError(f"{path}: {name} is one tensor with another name, whose values differ: {REMEDY}")


@contextmanager
def _file_errors(path: Path, sizes: Path | None = None) -> Iterator[None]:
    """Turn whatever a damaged or hostile file leads to into one line that names it, or the file of the sizes."""
    try:
        yield
    except KeyError as error:
        where = path if sizes is None or error.args[0] in SETTINGS else sizes
        raise ValueError(f"{where} has no {error}: {REMEDY}") from None
    except ValueError as error:  # it has its own remedy
        raise ValueError(f"{path}: {error}") from error
    except (ArithmeticError, AssertionError, AttributeError, IndexError, MemoryError, OSError, RuntimeError,
            SafetensorError, TypeError) as error:  # fmt: skip
        reason = " ".join(str(error).split())[:400] or type(error).__name__
        raise ValueError(f"{path} cannot be used ({reason}): {REMEDY}") from error


class _TooLargeError(ValueError):
    pass


@contextmanager
def _size_limit(most_tensors: int, most_bytes: int) -> Iterator[None]:
    """Raise ``ValueError`` in a block as soon as the modules that it makes are larger than that."""
    size = count = 0

    def add(module: nn.Module, name: str, tensor: Tensor | None) -> None:
        nonlocal size, count
        size, count = size + (0 if tensor is None else tensor.nbytes), count + 1
        if size > most_bytes or count > most_tensors:
            raise _TooLargeError(f"it describes a model that is larger than the weights beside it ({name}): {REMEDY}")

    hooks = [
        registration.register_module_parameter_registration_hook(add),
        registration.register_module_buffer_registration_hook(add),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
