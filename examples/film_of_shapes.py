"""A film to try ``recollect watch`` on: shapes go into a box and come out hidden in a hand.

python examples/film_of_shapes.py shapes.mp4 --frames 500
recollect train shape-activities --core ttm                      # 2 minutes
recollect watch shapes.mp4 --run runs/shape-activities-ttm-seed0 --out seen.mp4
"""

import argparse
from pathlib import Path

import torch

from recollect.recipes.ttm_video import TASK
from recollect.tasks.videos.shape_activities import ShapeActivities
from recollect.tasks.videos.video_files import VideoWriter


def main() -> None:
    """Draw one long video and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("film", type=Path)
    parser.add_argument("--frames", type=int, default=500, help="training videos have 34")
    parser.add_argument("--side", type=int, default=32, help="pixels along a side; training videos have 32")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    task = ShapeActivities(boxes=TASK.boxes, length=options.frames, size=options.side)
    writer = VideoWriter(options.film, 10, (options.side, options.side))
    for frame in task.sample(1, torch.Generator().manual_seed(options.seed)).inputs[0].numpy():
        writer.add(frame)
    writer.close()


if __name__ == "__main__":
    main()
