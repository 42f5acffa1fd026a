"""Small tasks whose data are read anew while models train: images with random crops, and tags of varying length."""

import random
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task

RECIPE = Recipe(lr=0.05, batch_size=8)


class Images(Dataset[tuple[Tensor, int]]):
    """Images of two classes, which are cropped and mirrored at random if they are to be."""

    def __init__(self, rows: int, *, is_changed: bool) -> None:
        own = torch.Generator().manual_seed(rows)
        self.labels = torch.arange(rows) % 2
        self.images = torch.randn(rows, 1, 6, 6, generator=own) + self.labels.view(-1, 1, 1, 1)
        self.is_changed = is_changed

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index]
        if self.is_changed:
            top, left = torch.randint(3, (2,)).tolist()
            image = F.pad(image, [1] * 4)[:, top : top + 6, left : left + 6]
            image = image.flip(-1) if random.random() < 0.5 else image
        return image, int(self.labels[index])


class Sentences(Dataset[tuple[Tensor, Tensor]]):
    """Words with a tag each, in sentences of several lengths."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        own = np.random.default_rng(index)
        words = torch.from_numpy(own.integers(1, 12, own.integers(2, 30)))
        return words, words % 3


def padded(items: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    words, tags = zip(*items, strict=True)
    pad = nn.utils.rnn.pad_sequence
    return {"words": pad(words, batch_first=True), "tags": pad(tags, batch_first=True, padding_value=-100)}


class Tagger(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Embedding(12, 6), nn.Linear(6, 3))


def convnet() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))


def changed_images(**options: object) -> Task:
    validation, test = (Images(rows, is_changed=False) for rows in (20, 22))
    return Task.from_datasets(
        Images(40, is_changed=True), validation, test, model=convnet, recipe=RECIPE, name="images", **options
    )


def tags_of_varying_length(**options: object) -> Task:
    train, validation, test = (
        DataLoader(Sentences(rows), batch_size=8, shuffle=is_train, collate_fn=padded)
        for rows, is_train in ((40, True), (20, False), (22, False))
    )
    return Task.from_loaders(
        train, validation, test, model=Tagger, target="tags", recipe=RECIPE, name="tags", **options
    )


def stream(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    own = torch.Generator().manual_seed(seed)
    for rows in (6, 8, 5):
        x = torch.randn(rows, 4, generator=own)
        yield x, x.sum(1)


def streamed_values() -> Task:
    return Task.from_loaders(
        stream, stream, stream, model=lambda: nn.Linear(4, 1), kind="regression", recipe=RECIPE, name="stream"
    )


STREAMED = {"images": changed_images, "tags": tags_of_varying_length, "stream": streamed_values}
