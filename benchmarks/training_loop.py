"""Training steps of `evomal.train` against the usual loop over a `DataLoader`: same model, data, batch and optimizer.

Both are measured in turns within one run, and the ratio is what counts. A step's time is the difference between a long
and a short training over the difference in steps, so that building the model and evaluating it do not count. On CUDA
the loops over a loader are tens of times slower, and run a tenth of the steps. "outside" is the share of the time that
is not forward, backward or update: against the same step on one batch that never changes. The images are random, as
speed does not depend on what they show.

There are two loaders: the lightest, over tensors that are normalised already, and the usual one of examples and papers,
over bytes that are normalised sample by sample.
"""

import argparse
import dataclasses
import functools
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from measuring import hardware, seconds
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import evomal
from evomal.engine.cuda_graphs import GraphedStep
from evomal.engine.precision import Precision, autocast, matmul_precision
from evomal.tasks.models import make_model
from evomal.tasks.parts import Part
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task

BATCH, CLASSES, TRAINING_ROWS = 128, 10, 12_800
ROUNDS = 5
MNIST, CIFAR = (1, 28, 28), (3, 32, 32)


@dataclass(frozen=True)
class Case:
    """A model and how it is trained; `steps` more in the long training than in the short one."""

    model: str
    shape: tuple[int, ...]
    device: str
    steps: int
    precision: Precision = "float32"
    channels_last: bool = False


CASES = (
    Case("logistic", MNIST, "cpu", 1000),
    Case("mlp", MNIST, "cpu", 60),
    Case("lenet5", MNIST, "cpu", 200),
    Case("logistic", MNIST, "cuda", 2000),
    Case("mlp", MNIST, "cuda", 2000),
    Case("lenet5", MNIST, "cuda", 2000),
    Case("resnet18", CIFAR, "cuda", 200),
    Case("resnet18", CIFAR, "cuda", 200, "bfloat16", channels_last=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only this device")
    parser.add_argument("--share", type=float, default=1.0, help="share of the steps that is run")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    console = Console(width=100)
    console.print(
        f"training, batch {BATCH}, SGD with Nesterov momentum and weight decay, median of {options.rounds} rounds, "
        f"{options.share:g} of the steps"
    )
    console.print(hardware())
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "model",
        "device",
        "precision",
        "tensors ms",
        "bytes ms",
        "evomal ms",
        "speed-ups",
        "range",
        "outside",
    ):
        table.add_column(column, justify="left" if column in ("model", "device", "precision") else "right")
    for case in CASES:
        if options.device in (None, case.device) and (case.device == "cpu" or torch.cuda.is_available()):
            short = dataclasses.replace(case, steps=max(20, round(case.steps * options.share)))
            table.add_row(*row(short, options.rounds))
    console.print(table)
    if not torch.cuda.is_available():
        console.print("cuda: not measured, there is no CUDA device")


def row(case: Case, rounds: int) -> list[str]:
    task = random_task(case)
    measured: list[list[float]] = [[], [], [], []]
    with matmul_precision(case.precision, torch.device(case.device)):
        ways: tuple[Callable[[int], None], ...] = (
            lambda steps: loader_loop(case, task, TensorDataset(task.train.inputs, task.train.targets), steps),
            lambda steps: loader_loop(case, task, Bytes(task), steps),
            lambda steps: our_loop(case, task, steps),
            lambda steps: unchanging_batch(case, task, steps),
        )
        for way in ways:
            way(10)
        of_loader = max(20, case.steps // 10) if case.device == "cuda" else case.steps
        for _ in range(rounds):
            for times, way, steps in zip(measured, ways, (of_loader, of_loader, case.steps, case.steps), strict=True):
                short, long = (seconds(functools.partial(way, count)) for count in (20, 20 + steps))
                times.append((long - short) / steps * 1e3)
    lightest, usual, ours, core = (statistics.median(times) for times in measured)
    ratios = sorted(a / b for a, b in zip(measured[0], measured[2], strict=True))
    outside = max(0.0, 1 - core / ours)
    return [
        case.model, case.device, case.precision, f"{lightest:.3f}", f"{usual:.3f}", f"{ours:.3f}",
        f"{lightest / ours:.1f}× {usual / ours:.1f}×", f"{ratios[0]:.1f}–{ratios[-1]:.1f}", f"{outside:.0%}",
    ]  # fmt: skip


def random_task(case: Case) -> Task:
    generator = torch.Generator().manual_seed(0)

    def part(rows: int) -> Part:
        images = torch.randn(rows, *case.shape, generator=generator)
        return Part(images, torch.randint(CLASSES, (rows,), generator=generator))

    return Task(
        kind="classification",
        train=part(TRAINING_ROWS),
        validation=part(BATCH),
        test=part(BATCH),
        model=lambda: make_model(case.model, case.shape, CLASSES),
        metric=evomal.tasks.metrics.chosen_metric(None, "classification"),
        outputs=CLASSES,
        recipe=Recipe(batch_size=BATCH),
    )


def our_loop(case: Case, task: Task, steps: int) -> None:
    evomal.train(
        task, "ce", steps=steps, device=case.device, precision=case.precision, channels_last=case.channels_last,
        curve_points=1,
    )  # fmt: skip


class Bytes(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Images as bytes, made floating-point numbers of mean 0 and deviation 1 when they are asked for."""

    def __init__(self, task: Task) -> None:
        self.images = task.train.inputs.mul(64).add(128).clamp(0, 255).to(torch.uint8)
        self.labels = task.train.targets

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return (self.images[index].float().div(255) - 0.5).div(0.25), self.labels[index]


def loader_loop(case: Case, task: Task, data: Dataset[tuple[torch.Tensor, ...]], steps: int) -> None:
    model, optimizer = started(case, task)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    done = 0
    while done < steps:
        for images, labels in loader:
            images, labels = images.to(case.device), labels.to(case.device)
            if case.channels_last:
                images = images.contiguous(memory_format=torch.channels_last)
            update(case, model, optimizer, images, labels)
            done += 1
            if done == steps:
                break


def unchanging_batch(case: Case, task: Task, steps: int) -> None:
    model, optimizer = started(case, task, fused=True)
    device = torch.device(case.device)
    images, labels = task.train.inputs[:BATCH].to(device), task.train.targets[:BATCH].to(device)
    if case.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    step = GraphedStep(lambda: update(case, model, optimizer, images, labels), device=device)
    for _ in range(steps):
        step()


def started(case: Case, task: Task, *, fused: bool | None = None) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = task.model().to(case.device).train()
    if case.channels_last:
        model = model.to(memory_format=torch.channels_last)
    recipe = task.recipe
    optimizer = torch.optim.SGD(
        model.parameters(), lr=recipe.lr, momentum=recipe.momentum, nesterov=True, weight_decay=recipe.weight_decay,
        fused=fused,
    )  # fmt: skip
    return model, optimizer


def update(
    case: Case, model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor
) -> None:
    with autocast(case.precision, images.device):
        outputs = model(images)
    loss = F.cross_entropy(outputs.float(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    main()
