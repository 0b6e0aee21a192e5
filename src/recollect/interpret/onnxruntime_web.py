"""onnxruntime-web, which runs ONNX models in a browser: found on this machine, or fetched once by npm.

    python -m recollect.interpret.onnxruntime_web        fetches it into the cache

It has 14 MB of WebAssembly and is no Python package, so it is no part of this library.
"""

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from recollect.files import write_atomically

VERSION = "1.30.0"
NAME = f"onnxruntime-web-{VERSION}.tgz"
SCRIPT, BINARY = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
PLACE = "RECOLLECT_ONNXRUNTIME_WEB"
"""Environment variable that names a folder with the two files, or the archive that ``npm pack`` makes."""
FETCHING = 300  # seconds that npm may take


class Runtime(NamedTuple):
    """The files that run a model in a page."""

    script: bytes  # a JavaScript module
    binary: bytes  # WebAssembly


def find_runtime(place: Path | None = None, *, fetch: bool = True) -> Runtime:
    """Find the runtime: in ``place``, else by the environment variable, else in the cache, else fetch it by npm.

    Args:
        place: folder with the two files (or ``dist/`` with them), or an archive of ``npm pack``.
        fetch: whether npm may be run.

    Raises:
        ValueError: it is not there.
    """
    given = place or (Path(os.environ[PLACE]) if os.environ.get(PLACE) else None)
    if given is not None:
        return _read(given)
    cache = cache_folder()
    if fetch and not all((cache / name).is_file() for name in (SCRIPT, BINARY)):
        _fetch(cache)
    return _read(cache)


def cache_folder() -> Path:
    """Return the folder of the fetched files."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "recollect" / f"onnxruntime-web-{VERSION}"


def _read(place: Path) -> Runtime:
    if place.is_file() and tarfile.is_tarfile(place):
        with tarfile.open(place) as archive:
            return Runtime(*(_member(archive, name, place) for name in (SCRIPT, BINARY)))
    for folder in (place, place / "dist"):
        if all((folder / name).is_file() for name in (SCRIPT, BINARY)):
            return Runtime((folder / SCRIPT).read_bytes(), (folder / BINARY).read_bytes())
    raise _missing(f"{place} has no {SCRIPT} and {BINARY}")


def _member(archive: tarfile.TarFile, name: str, place: Path) -> bytes:
    try:
        found = archive.extractfile(f"package/dist/{name}")
    except KeyError:
        found = None
    if found is None:
        raise _missing(f"{place} has no {name}")
    return found.read()


def _fetch(cache: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise _missing("npm is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", f"onnxruntime-web@{VERSION}", "--silent"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCHING)
        except subprocess.TimeoutExpired as error:
            raise _missing(f"npm did not finish in {FETCHING} s") from error
        archive = Path(folder) / NAME
        if done.returncode or not archive.is_file():
            said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise _missing(f"npm could not fetch it ({said})")
        runtime = _read(archive)
    cache.mkdir(parents=True, exist_ok=True)
    for name, data in zip((SCRIPT, BINARY), runtime, strict=True):
        write_atomically(cache / name, data)


def _missing(why: str) -> ValueError:
    return ValueError(
        f"a live page needs onnxruntime-web {VERSION}: {why}; run `npm pack onnxruntime-web@{VERSION}` where there is "
        f"a network, and name the file with --runtime {NAME} or in {PLACE}"
    )


if __name__ == "__main__":
    find_runtime()
    print(cache_folder())
