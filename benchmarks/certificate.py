"""The certificate of every core, with a long run of 10^5 steps for all of them, kept in benchmarks/results/.

python benchmarks/certificate.py
"""

import json
import sys
from pathlib import Path

from rich.console import Console

from recollect.benchmark.machine import describe
from recollect.certify import certify_many, summary
from recollect.cores import CORES

TARGET = Path(__file__).parent / "results" / "certificate.json"


def main() -> None:
    """Certify all cores; the long run of a sequential core takes a minute or two."""
    limit = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    environment = describe()
    cards = list(certify_many(list(CORES), options={"long_steps": 100_000, "long_seconds": limit}))
    found = {"environment": environment, "cards": [card.as_dict() for card in cards]}
    TARGET.write_text(json.dumps(found, indent=1) + "\n")
    Console().print(summary(cards))


if __name__ == "__main__":
    main()
