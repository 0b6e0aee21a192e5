"""The certificate of every core, with a long run of 10^5 steps for all of them, kept in benchmarks/results/.

python benchmarks/certificate.py [--seconds 600] [--cores mott timesformer]         the others' cards stay as they are
"""

import argparse
import json
from pathlib import Path

from rich.console import Console

import source_tree  # noqa: F401
from recollect.benchmark.machine import describe
from recollect.certify import certify_many, summary
from recollect.cores import CORES

TARGET = Path(__file__).parent / "results" / "certificate.json"


def main() -> None:
    """Certify all cores; the long run of a sequential core takes a minute or two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="of the long run of a core")
    parser.add_argument("--cores", nargs="+", default=list(CORES), choices=list(CORES))
    options = parser.parse_args()
    environment = describe()
    cards = list(certify_many(options.cores, options={"long_steps": 100_000, "long_seconds": options.seconds}))
    made = {
        name: card.as_dict() | {"environment": environment} for name, card in zip(options.cores, cards, strict=True)
    }
    before = {card["core"]: card for card in json.loads(TARGET.read_text())["cards"]} if TARGET.is_file() else {}
    known = before | made
    found = {"cards": [known[name] for name in CORES if name in known]}
    TARGET.write_text(json.dumps(found, indent=1) + "\n")
    Console().print(summary(cards))


if __name__ == "__main__":
    main()
