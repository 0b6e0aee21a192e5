"""Live streams of one model for many clients: a store, a batcher, and a small HTTP front.

    recollect serve runs/t-maze-hcam-seed0

The store and the batcher need no web framework; the front needs ``pip install recollect-torch[serve]``. Importing this
package does not import torch.
"""

from typing import TYPE_CHECKING

from recollect.lazy import attach
from recollect.serving.config import ServingConfig as ServingConfig

if TYPE_CHECKING:
    from recollect.serving.batcher import Batcher as Batcher
    from recollect.serving.client import Client as Client
    from recollect.serving.refusal import RefusedError as RefusedError
    from recollect.serving.server import serve as serve
    from recollect.serving.store import Answer as Answer
    from recollect.serving.store import Step as Step
    from recollect.serving.store import StreamStore as StreamStore

__getattr__ = attach(
    __name__,
    {
        "Answer": "store",
        "Batcher": "batcher",
        "Client": "client",
        "RefusedError": "refusal",
        "Step": "store",
        "StreamStore": "store",
        "serve": "server",
    },
)
