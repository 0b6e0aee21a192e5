"""Put ``src`` on the import path: the scripts also run from a source tree that is not installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
