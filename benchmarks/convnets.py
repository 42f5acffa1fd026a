"""Image models of CIFAR-10: a meta step against a training step, in time and memory, one candidate at a time.

A meta step is a pull-back at θ0, a gradient at θ' and a Jacobian-vector product at θ0: eight forward passes of work
where a training step has three. Steps are captured as CUDA graphs. The data are random. Memory is what torch reserves,
beside data and initial weights for each step alone, and with them for both.
"""

import argparse
import contextlib
import gc
import statistics
from collections.abc import Callable

import measuring
import torch
from rich.console import Console
from step_parts import Parts, profiled, report

from evomal.engine import Engine, EngineSettings
from evomal.engine.cuda_graphs import GraphedStep
from evomal.engine.row_losses import LoadedLoss
from evomal.engine.training import Training
from evomal.expression import Expression
from evomal.forest import FILLER
from evomal.losses.loss import WeightedTree
from evomal.tasks.metrics import chosen_metric
from evomal.tasks.models import make_model
from evomal.tasks.parts import Part
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task

MODELS = ("alexnet", "vgg16", "allcnnc", "resnet18", "preresnet101", "wrn28-10", "squeezenet", "pyramidnet")
WARM_UP, STEPS, ROUNDS = 5, 10, 7
Watching = Callable[[Parts], contextlib.AbstractContextManager[None]]
LOSS = Expression.parse("abs(mul(y, log(f)))")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", "--model", default=",".join(MODELS), help="names, separated by commas")
    parser.add_argument("--precision", choices=["float32", "tf32", "bfloat16"], default="bfloat16")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument(
        "--profile", action="store_true",
        help="also print, for the parts of both steps, time by kind of kernel, memory, and the longest kernels",
    )  # fmt: skip
    parser.add_argument("--top", type=int, default=8, help="kernels per part that a profile prints")
    options = parser.parse_args()
    console = Console(width=200 if options.profile else 110)
    console.print(
        f"{measuring.hardware()}, batch {options.batch}, {options.precision}, channels last; medians, GiB at most"
    )
    line = "{:<13}" + "{:>13}{:>10}{:>7}" * 3
    console.print(
        line.format(
            "model", "training ms", "meta ms", "ratio", "training GiB", "meta GiB", "ratio", "both GiB", "predicted",
            "ratio",
        )
    )  # fmt: skip
    for name in options.models.split(","):
        try:
            console.print(line.format(name, *measured(name, options, console)))
        except torch.OutOfMemoryError:
            console.print(f"{name}: out of memory")


def measured(name: str, options: argparse.Namespace, console: Console) -> tuple[str, ...]:
    """Returns milliseconds and memory of a training step and of a meta step."""
    settings = EngineSettings(
        device=options.device, precision=options.precision, channels_last=True, population=1, meta_steps=WARM_UP,
        training_steps=WARM_UP, population_mode="looped",
    )  # fmt: skip
    reset_peak()
    before = reserved()
    engine = Engine(task_of(name, options.batch), seed=0, settings=settings)
    predicted = engine.plans[0].predicted_bytes / 2**30
    with engine._context(), engine._data[0].model.differentiable_twice():
        criterion = LoadedLoss(engine._data[0].forest([FILLER]), dtype=settings.dtype)
        criterion.load(WeightedTree(LOSS, None), 1.0)
        engine.prepare()
        reset_peak()
        without = reserved()
        training = Training(engine._workspace._training_setup(0), criterion)
        training.start()
        training.advance(WARM_UP)
        training_ms, training_gib = milliseconds(training.step), peak() - without
        # In a search both steps stay captured, each with memory of its own.
        reset_peak()
        without = reserved()
    engine.optimise([LOSS], [[1.0] * LOSS.edges])
    with engine._context(), engine._data[0].model.differentiable_twice():
        meta_step = engine._workspace.optimiser([LOSS])._optimisation.step
        meta_ms, meta_gib = milliseconds(meta_step), peak() - without
        both = peak() - before
        if options.profile:
            show_parts(f"{name}: training step", training.step, Parts.of_training, options.top, console)
            show_parts(f"{name}: meta step", meta_step, Parts.of_meta, options.top, console)
    del engine, training, meta_step
    gc.collect()
    return (
        f"{training_ms:.3f}", f"{meta_ms:.3f}", f"{meta_ms / training_ms:.2f}",
        f"{training_gib:.2f}", f"{meta_gib:.2f}", f"{meta_gib / max(training_gib, 1e-9):.2f}",
        f"{both:.2f}", f"{predicted:.2f}", f"{predicted / max(both, 1e-9):.2f}",
    )  # fmt: skip


def milliseconds(step: GraphedStep) -> float:
    """Returns the median time of a step, of several in a row without waiting between them."""
    if step.refusal and torch.cuda.is_available():
        raise SystemExit(f"the step is not captured: {step.refusal}")
    return statistics.median(measuring.seconds(step, STEPS) for _ in range(ROUNDS)) * 1e3


def show_parts(title: str, step: GraphedStep, watching: Watching, top: int, console: Console) -> None:
    """Print where the time and memory of a step go; it runs eagerly, as a captured one has no parts."""
    parts = Parts()
    kernels = profiled(step._function, lambda: watching(parts))
    report(title, kernels, parts.memory, top=top, console=console)


def task_of(name: str, batch: int) -> Task:
    generator = torch.Generator().manual_seed(0)
    parts = [
        Part(torch.randn(rows, 3, 32, 32, generator=generator), torch.arange(rows) % 10) for rows in (2048, 512, 512)
    ]
    return Task(
        "classification", *parts, model=lambda: make_model(name, (3, 32, 32), 10),
        metric=chosen_metric(None, "classification"), outputs=10, recipe=Recipe(lr=0.01, batch_size=batch),
    )  # fmt: skip


def reserved() -> float:
    return torch.cuda.memory_reserved() / 2**30 if torch.cuda.is_available() else 0.0


def peak() -> float:
    return torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 0.0


def reset_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
