"""Small files in the form of the published ones."""

import pickle
from pathlib import Path

import numpy as np

from recollect.tasks.images.stl10 import BYTES


def cifar_file(path: Path, labels, classes=10, data=None):
    """A pickle as the Python version has it; random pictures, others in files of other names."""
    random = np.random.default_rng([*path.name.encode()])
    data = random.integers(0, 256, (len(labels), 3072), dtype=np.uint8) if data is None else data
    names = {b"labels": labels} if classes == 10 else {b"fine_labels": labels, b"coarse_labels": [0] * len(labels)}
    path.write_bytes(pickle.dumps({b"data": data, **names}, protocol=2))


def cifar(folder: Path, classes=10):
    """Both halves; 20 training pictures (CIFAR-10), or 10."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"] if classes == 10 else ["train", "test"]
    for name in names:
        cifar_file(folder / name, [0, 3, 9, 1] if classes == 10 else [0, 99, 5, 42, 7, 3, 2, 1, 50, 60], classes)
    return folder


def stl10(folder: Path):
    """Both halves and the pictures without labels."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for name, count in (("train", 6), ("test", 4), ("unlabeled", 5)):
        (folder / f"{name}_X.bin").write_bytes(random.integers(0, 256, count * BYTES, dtype=np.uint8).tobytes())
        if name != "unlabeled":
            (folder / f"{name}_y.bin").write_bytes(bytes([1, 10, 5, 2, 3, 4][:count]))
    return folder
