"""How busy a device stays with data that are read anew: a convnet on images with random crops, read by workers.

The same training runs on the same images in memory, without crops, where the device never waits. "busy" is the time of
such a step over that of a step on images that are read anew; "waiting" is the share of the latter in which the host
waits for a batch (the device may still have steps to compute then). The images are random, as speed does not depend on
what they show.
"""

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from measuring import hardware, synchronise
from torch import Tensor, nn
from torch.utils.data import Dataset

from evomal.engine.precision import Precision, matmul_precision
from evomal.engine.row_losses import RowLoss
from evomal.engine.training import Training, TrainingSetup
from evomal.randomness import isolated_torch
from evomal.tasks.prefetching import Stream, worker_count
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task

CLASSES, SIDE, PADDING = 10, 32, 4


class Crops(Dataset[tuple[Tensor, int]]):
    """Images as bytes, each cropped at a random place, mirrored at random and normalised when it is read."""

    def __init__(self, rows: int) -> None:
        own = torch.Generator().manual_seed(0)
        shape = (rows, 3, SIDE + 2 * PADDING, SIDE + 2 * PADDING)
        self._images = torch.randint(256, shape, dtype=torch.uint8, generator=own)
        self._labels = (torch.arange(rows) % CLASSES).tolist()

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        top, left, is_mirrored = torch.randint(2 * PADDING + 1, (3,)).tolist()
        image = self._images[index, :, top : top + SIDE, left : left + SIDE]
        image = image.flip(-1) if is_mirrored % 2 else image
        return image.float().div_(255).sub_(0.5), self._labels[index]


class Convnet(nn.Module):
    """Six convolutions of one width, two at each resolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        pairs = itertools.pairwise([3, *[width] * 6])
        self.layers = nn.ModuleList([nn.Conv2d(before, after, 3, padding=1) for before, after in pairs])
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = F.relu(layer(x))
            x = F.max_pool2d(x, 2) if number % 2 else x
        result: Tensor = self.head(x.mean((2, 3)))
        return result


@dataclass(frozen=True)
class Measured:
    """Seconds of a step, and the part of them in which the host waits for a batch."""

    step: float
    waiting: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--workers", default="rule,2,4,8", help="numbers of worker processes, or rule for evomal's own")
    parser.add_argument("--precisions", default="float32,tf32,bfloat16")
    options = parser.parse_args()
    device = torch.device(options.device)
    about = f"width {options.width}, batch {options.batch}, {options.steps} steps"
    print(f"{hardware(device)}; {about}, random crops of {SIDE} x {SIDE}")
    precisions = options.precisions.split(",") if device.type == "cuda" else ["float32"]
    workers = [None if text == "rule" else int(text) for text in options.workers.split(",")]
    row = "{:<10}{:>8}{:>14}{:>14}{:>12}{:>9}{:>7}"
    print(row.format("precision", "workers", "in memory ms", "read anew ms", "images / s", "waiting", "busy"))
    for precision in precisions:
        for cells in rows_of(
            device, precision, workers, width=options.width, batch=options.batch, rows=options.rows, steps=options.steps
        ):
            print(row.format(*cells), flush=True)


def rows_of(
    device: torch.device, precision: Precision, workers: Sequence[int | None], *, width: int, batch: int, rows: int,
    steps: int,
) -> Iterator[tuple[str, ...]]:  # fmt: skip
    """Returns the rows of the table for one precision, each as soon as it is measured."""
    dataset, small = Crops(rows), Crops(4 * CLASSES)
    recipe = Recipe(lr=0.01, batch_size=batch)

    def task_of(*, cached: bool, number: int | None = None) -> Task:
        return Task.from_datasets(
            dataset, small, small, model=lambda: Convnet(width), recipe=recipe, cached=cached, workers=number
        )

    in_memory = measured(task_of(cached=True), device, precision, steps)
    for number in workers:
        task = task_of(cached=False, number=number)
        assert task.train.source is not None
        streamed = measured(task, device, precision, steps)
        yield (
            precision, str(worker_count(task.train.source, device)), f"{in_memory.step * 1e3:.2f}",
            f"{streamed.step * 1e3:.2f}", f"{batch / streamed.step:,.0f}",
            f"{streamed.waiting / streamed.step:.0%}", f"{min(1.0, in_memory.step / streamed.step):.0%}",
        )  # fmt: skip


def measured(task: Task, device: torch.device, precision: Precision, steps: int) -> Measured:
    """Returns the time of a step of one training, after a tenth as many steps to warm up."""
    warm_up, waited, at = max(10, steps // 10), 0.0, Stream.at

    def timed(stream: Stream, step: int) -> list[object]:
        nonlocal waited
        start = time.perf_counter()
        batches = at(stream, step)
        waited += time.perf_counter() - start
        return batches  # type: ignore[return-value]

    setup = TrainingSetup(task, task.recipe, 0, device, precision, channels_last=device.type == "cuda")
    Stream.at = timed  # type: ignore[method-assign,assignment]
    try:
        with isolated_torch(0, device=device), matmul_precision(precision, device):
            training = Training(setup, RowLoss(nn.CrossEntropyLoss()))
            training.start(steps=warm_up + steps)
            training.advance(warm_up)
            synchronise()
            start, waited = time.perf_counter(), 0.0
            training.advance(warm_up + steps)
            synchronise()
            return Measured((time.perf_counter() - start) / steps, waited / steps)
    finally:
        Stream.at = at  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
