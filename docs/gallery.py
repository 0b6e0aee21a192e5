"""Makes pictures of the home page: ``python docs/gallery.py`` (minutes; Chromium takes the picture of a page)."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ASSETS = Path(__file__).parent / "assets"
TRAIN = ["--world.length", "10", "--steps", "120", "--evaluate-every", "10", "--stop-score", "1.1"]
CORES, SEEDS = ("hcam", "memoryless"), ("0", "1")


def main() -> None:
    """Train, film, compare."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for core in CORES:
            for seed in SEEDS:
                run(folder, "train", "t-maze", "--core", core, *TRAIN, "--seed", seed, "--directory", f"{core}-{seed}")
        make_film(folder)
        make_page(folder)


def make_film(folder: Path) -> None:
    """The film of one run, at half its size."""
    run(folder, "evaluate", "hcam-0", "--best", "--video", "videos")
    film = Image.open(folder / "videos/hcam-0.gif")
    stills, times = [], []
    for place in range(film.n_frames):
        film.seek(place)
        times.append(film.info["duration"])
        stills.append(
            film.convert("RGB")
            .resize((film.width * 3 // 4, film.height * 3 // 4))
            .quantize(64, dither=Image.Dither.NONE)
        )
    stills[0].save(
        ASSETS / "t-maze.gif", save_all=True, append_images=stills[1:], duration=times, loop=0, optimize=True
    )


def make_page(folder: Path) -> None:
    """A picture of the page that compares the runs."""
    run(folder, "compare", *(f"{core}-{seed}" for core in CORES for seed in SEEDS))
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    shot, page = folder / "page.png", folder / "comparison/comparison.html"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1120,880"]
    subprocess.run([browser, *options, f"--screenshot={shot}", page.as_uri()], check=True)
    Image.open(shot).convert("RGB").quantize(64).save(ASSETS / "compare.png", optimize=True)


def run(folder: Path, *words: str) -> None:
    """One command, in a folder."""
    subprocess.run([sys.executable, "-m", "recollect", *words], cwd=folder, check=True)


if __name__ == "__main__":
    main()
