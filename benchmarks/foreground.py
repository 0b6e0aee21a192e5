"""The picture of docs/images.md: what a ViT and a ViT + TLB attend to in the same pictures.

    python benchmarks/foreground.py [--runs runs/reproduce/tlb-images] [--seed 0]

Takes the weights that ``recollect reproduce tlb-images`` trained, and five pictures that no model was trained on.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import torch

import source_tree  # noqa: F401
from recollect.interpret.figures import top_mask
from recollect.interpret.foreground import attention_to_patches
from recollect.tasks.images.contract import ImageTask
from recollect.training.saved_models import load_model
from recollect.training.saved_run import load_config

ROOT = Path(__file__).parents[1]
MODELS = {"vit": "ViT", "vit-tlb": "ViT + TLB"}
SHARE, PICTURES = 0.2, 5


def main() -> None:
    """Draw rows of pictures, a column for what is there and one for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce/tlb-images"))
    parser.add_argument("--seed", type=int, default=0, help="of the runs")
    args = parser.parse_args()
    shown: dict[str, list[object]] = {}
    for label, name in MODELS.items():
        (folder,) = args.runs.glob(f"{label}-seed{args.seed}-*")
        task = load_config(folder).task
        assert isinstance(task, ImageTask)
        task = task.scored_on(final=True)
        pictures = task.pictures(PICTURES, torch.Generator().manual_seed(1))
        frames = (pictures.images.movedim(1, -1) * 255).round().byte().numpy()
        maps, foreground = attention_to_patches(load_model(folder, best=True), task, samples=PICTURES, seed=1)
        side = round(maps.shape[1] ** 0.5)
        shown |= {"picture": list(frames), "foreground": list(foreground.numpy())}
        masks = (top_mask(f, m, SHARE) for f, m in zip(frames, maps.view(-1, side, side).numpy(), strict=True))
        shown[f"{name}, top {SHARE:.0%}"] = list(masks)
    chart, panels = plt.subplots(len(shown), PICTURES, figsize=(1.5 * PICTURES + 1.3, 1.5 * len(shown)), dpi=140)
    for row, (name, images) in zip(panels, shown.items(), strict=True):
        for panel, image in zip(row, images, strict=True):
            panel.imshow(image, interpolation="nearest", cmap="gray")
            panel.set(xticks=[], yticks=[])
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=10)
    chart.tight_layout()
    chart.savefig(ROOT / "docs" / "assets" / "foreground.png")


if __name__ == "__main__":
    main()
