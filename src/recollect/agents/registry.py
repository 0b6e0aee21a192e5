"""The kinds of config that an agent's JSON may name: cores, encoders and tasks, by the keys of their tables."""

from recollect.cores import CORES
from recollect.encoders import ENCODERS
from recollect.tasks import TASKS

REGISTRY: dict[str, type] = {**CORES, **ENCODERS, **TASKS}
