"""Environment of a benchmark: machine, versions, commit, date and command."""

from datetime import UTC, datetime
from typing import Any

from recollect import machine
from recollect.runs import provenance


def describe() -> dict[str, Any]:
    """Describe the machine and the versions as flat data, for the columns of a CSV file."""
    known = provenance.environment()
    hardware, versions = known["hardware"], known["versions"]
    return {
        "cpu": " ".join([hardware["processor"], *machine.matrix_extensions()]),
        "cores": hardware["cores"],
        "threads": hardware["threads"],
        "platform": hardware["system"],
        "python": versions["python"],
        "torch": versions["torch"],
        "commit": provenance.commit(digits=12) or "unknown",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": known["command"],
    }
