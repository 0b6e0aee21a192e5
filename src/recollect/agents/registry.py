"""Config classes that an agent's JSON may name as ``kind``: cores, encoders and tasks, by the keys of their tables."""

from recollect.cores import CORES
from recollect.encoders import ENCODERS
from recollect.tasks import TASKS

REGISTRY: dict[str, type] = {**CORES, **ENCODERS, **TASKS}
