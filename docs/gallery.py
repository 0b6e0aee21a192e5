"""Makes pictures of the home page: ``python docs/gallery.py`` (minutes; Chromium takes the picture of a page)."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from recollect.tasks.videos.video_files import read_video

ASSETS, EXAMPLES = Path(__file__).parent / "assets", Path(__file__).parent.parent / "examples"
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
        run(folder, "train", "shape-activities", "--core", "ttm", "--directory", "detector")
        make_watch(folder, folder / "detector")


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


def make_watch(folder: Path, detector: Path) -> None:
    """What a detector says when a shape goes into the box, and when it comes out unseen."""
    film, seen = folder / "shapes.mp4", folder / "seen.mp4"
    subprocess.run([sys.executable, EXAMPLES / "film_of_shapes.py", film], check=True)
    told = run(folder, "watch", str(film), "--run", str(detector), "--out", str(seen), "--json")
    events = [json.loads(line) for line in told.splitlines()]
    frames = [frame.pixels for frame in read_video(seen)]
    moments = longest_wait([(event["frame"], event["activity"]) for event in events if event["kind"] == "begins"])
    picture = np.concatenate([frames[moment + 1] for moment in moments], 1)
    Image.fromarray(picture).quantize(256, dither=Image.Dither.NONE).save(ASSETS / "watch.png", optimize=True)


def longest_wait(begins: list[tuple[int, str]]) -> tuple[int, int]:
    """Of all shapes that were put and taken, the two frames that lie furthest apart."""
    put: dict[str, int] = {}
    found = []
    for frame, activity in begins:
        what, _, shape = activity.partition(" ")
        if what == "put":
            put = {shape: frame}
        elif what == "take" and shape in put:
            found.append((put[shape], frame))
    return max(found, key=lambda pair: pair[1] - pair[0])


def run(folder: Path, *words: str) -> str:
    """One command, in a folder; what it printed."""
    command = [sys.executable, "-m", "recollect", *words]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
