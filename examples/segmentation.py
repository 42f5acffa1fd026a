"""Segmentation of small images: a class for every pixel, with an unlabelled border around the shapes.

Noisy images of 12 by 12 pixels hold discs and squares. The pixels at their edges have the label 255, as in Pascal VOC:
they count in no loss and no metric. The model returns (batch, classes, height, width), and is judged by the mean
intersection over union.
"""

import numpy as np
from torch import nn

import evomal

SIZE, CLASSES, UNLABELLED = 12, ("background", "disc", "square"), 255
SEARCH = {
    "population": 8, "generations": 2, "training_steps": 40, "rungs": (1.0,), "tried_rates": 1, "final_steps": 80,
    "finalists": 2, "final_seeds": 3,
}  # fmt: skip
VERDICT = {"seeds": 5, "tune_lr": 3, "rescale": False, "final_steps": 80}


def shapes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of shape (count, 1, height, width) and their masks."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    images, masks = rng.normal(0, 0.6, (count, 1, SIZE, SIZE)), np.zeros((count, SIZE, SIZE), dtype=np.int64)
    for image, mask in zip(images, masks, strict=True):
        for _ in range(rng.integers(1, 3)):
            (row, column), radius, kind = rng.integers(3, SIZE - 3, 2), rng.uniform(1.5, 3), rng.integers(1, 3)
            far = np.maximum(abs(rows - row), abs(columns - column))
            distance = np.hypot(rows - row, columns - column) if kind == 1 else far
            mask[distance <= radius + 0.7] = UNLABELLED
            mask[distance <= radius] = kind
            image[0, distance <= radius] += 1.0 if kind == 1 else 1.3
    return images.astype(np.float32), masks


def network() -> nn.Module:
    """Three convolutions, whose outputs are as large as the image."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, len(CLASSES), 1),
    )  # fmt: skip


def make_task(count: int = 300) -> evomal.Task:
    """The images as a task."""
    images, masks = shapes(count)
    return evomal.Task.from_arrays(
        images, masks, model=network, metric="mean_iou", ignore_index=UNLABELLED, name="shapes",
        recipe=evomal.Recipe(optimizer="adam", lr=3e-2, weight_decay=0.0, batch_size=16, schedule="cosine"),
    )  # fmt: skip


def main() -> None:
    task = make_task()
    print(task)
    result = evomal.search(task, seed=0, progress=True, **SEARCH)
    print(result)
    losses = {"learned": result.best.loss(), "focal": "focal"}
    print(evomal.compare(task, losses=losses, progress=True, **VERDICT))


if __name__ == "__main__":
    main()
