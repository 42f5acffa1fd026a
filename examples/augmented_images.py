"""Augmented images from a Dataset: random shifts and noise that are drawn anew in every epoch.

A `Dataset` of torch shifts every training image at random when it is read. evomal notices that items differ from
reading to reading, and reads them while a model trains, as a `DataLoader` would, so that no model sees the same image
twice; what is drawn follows from the seed, so that every loss is trained on the same batches.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset

import evomal

SEARCH = {
    "population": 8, "generations": 2, "training_steps": 60, "rungs": (1.0,), "tried_rates": 1, "final_steps": 120,
    "finalists": 2, "final_seeds": 3, "first_trees": 1000,
}  # fmt: skip
VERDICT = {"seeds": 5, "tune_lr": 3, "rescale": False, "final_steps": 120}


class Digits(Dataset[tuple[Tensor, int]]):
    """Images of 8 by 8 pixels with their digits; training images are shifted and have noise."""

    def __init__(self, images: Tensor, digits: Tensor, *, is_augmented: bool) -> None:
        self.images, self.digits, self.is_augmented = images, digits, is_augmented

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index]
        if self.is_augmented:
            down, right = torch.randint(-1, 2, (2,)).tolist()
            image = image.roll((down, right), dims=(1, 2)) + 0.1 * torch.randn_like(image)
        return image, int(self.digits[index])


def network() -> nn.Module:
    """A small convolutional network."""
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 10))


def make_task(most: int = 1000) -> evomal.Task:
    """A third of the digits each to train on, to validate and to test."""
    images, digits = load_digits(return_X_y=True)
    chosen = np.random.default_rng(0).permutation(len(digits))[:most]
    x = torch.from_numpy(images[chosen] / 16).float().view(-1, 1, 8, 8)
    y = torch.from_numpy(digits[chosen])
    first, second = len(y) // 3, 2 * len(y) // 3
    return evomal.Task.from_datasets(
        Digits(x[:first], y[:first], is_augmented=True),
        Digits(x[first:second], y[first:second], is_augmented=False),
        Digits(x[second:], y[second:], is_augmented=False),
        model=network,
        recipe=evomal.Recipe(lr=0.1, batch_size=32),
        name="shifted digits",
    )


def main() -> None:
    task = make_task()
    print(task)
    print(f"training images are read while a model trains: {task.record['read_anew']}")
    result = evomal.search(task, seed=0, progress=True, **SEARCH)
    print(result)
    losses = {"learned": result.best.loss(), "label smoothing": "label-smoothing"}
    print(evomal.compare(task, losses=losses, progress=True, **VERDICT))


if __name__ == "__main__":
    main()
