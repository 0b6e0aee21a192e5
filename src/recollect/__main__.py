"""``python -m recollect``."""

import sys

from recollect.cli import main

if __name__ == "__main__":  # a model folder may name any module of this library as that of its core
    sys.exit(main())
