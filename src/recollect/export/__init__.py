"""One step of a model with its state, as a folder that runs without this library: onnx, pt2 or aoti.

    from recollect.export import export_model
    export_model(agent, "robot/", format="onnx")        # model.onnx, manifest.json, selftest.npz, README.md

Importing this package does not import torch: its functions are imported when they are first used.
"""

from typing import TYPE_CHECKING

from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.export.compiled import compiled_stream as compiled_stream
    from recollect.export.folder import export_model as export_model
    from recollect.export.folder import export_run as export_run
    from recollect.export.step import ModelStep as ModelStep
    from recollect.export.step import one_step as one_step
    from recollect.export.trace import trace as trace

__getattr__ = attach(
    __name__,
    {
        "ModelStep": "step",
        "compiled_stream": "compiled",
        "export_model": "folder",
        "export_run": "folder",
        "one_step": "step",
        "trace": "trace",
    },
)
