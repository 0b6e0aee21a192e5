"""The C++ client of an exported ONNX model: a template with the model's tensors filled in."""

import json
import math
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

import torch

from recollect.export.step import ModelStep

TYPES = {
    "float32": ("float", "FLOAT"),
    "float64": ("double", "DOUBLE"),
    "int64": ("int64_t", "INT64"),
    "int32": ("int32_t", "INT32"),
    "int16": ("int16_t", "INT16"),
    "int8": ("int8_t", "INT8"),
    "uint64": ("uint64_t", "UINT64"),
    "uint32": ("uint32_t", "UINT32"),
    "uint16": ("uint16_t", "UINT16"),
    "uint8": ("uint8_t", "UINT8"),
    "bool": ("uint8_t", "BOOL"),
    "float16": ("uint16_t", "FLOAT16"),
}
"""Types of C++ and of ONNX by the manifest's names."""
BYTES = {name: getattr(torch, name).itemsize for name in TYPES}


def client(step: ModelStep, manifest: Mapping[str, Any]) -> str:
    """Return ``client.cpp`` for a model and its manifest."""
    text = (files("recollect.export") / "templates" / "client.cpp.txt").read_text()
    return Template(text).substitute(
        inputs="\n".join(_tensor(one["name"], one, 0) for one in manifest["inputs"]),
        state="\n".join(_tensor(one["input"], one, one["initial"]) for one in manifest["state"]),
        outputs=", ".join(json.dumps(name) for name in step.outputs),
        sizes=", ".join(str(math.prod(one["shape"][1:]) * BYTES[one["dtype"]]) for one in manifest["outputs"]),
    )


def _tensor(name: str, about: Mapping[str, Any], initial: Any) -> str:
    """Return C++ source of a tensor of one row with its initial numbers, as an element of a vector."""
    kind, onnx = TYPES[about["dtype"]]
    shape = about["shape"][1:]
    numbers = f"filled<{kind}>({math.prod(shape)}, {_number(initial)})"
    if isinstance(initial, list):
        numbers = f"copied<{kind}>({{{', '.join(map(_number, _flatten(initial)))}}})"
    axes = ", ".join(map(str, (1, *shape)))
    return f"    {{{json.dumps(name)}, ONNX_TENSOR_ELEMENT_DATA_TYPE_{onnx}, {{{axes}}}, {numbers}}},"


def _number(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _flatten(values: Any) -> list[Any]:
    return [one for value in values for one in _flatten(value)] if isinstance(values, list) else [values]
