"""Image models of CIFAR-10: a meta step against a training step, in time and memory, one candidate at a time.

A meta step is a pull-back at θ0, a gradient at θ' and a Jacobian-vector product at θ0, which runs the model again: nine
forward passes of work where a training step has three. Steps are captured as CUDA graphs. The data are random.
"""

import argparse
import gc
import statistics
import time

import measuring
import torch
from rich.console import Console
from rich.table import Table

from evomal.engine import Engine, EngineSettings, Trial
from evomal.engine.precision import Precision
from evomal.expression import Expression
from evomal.losses.loss import WeightedTree
from evomal.tasks.metrics import chosen_metric
from evomal.tasks.models import make_model
from evomal.tasks.parts import Part
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task

MODELS = ("alexnet", "vgg16", "allcnnc", "resnet18", "preresnet101", "wrn28-10", "squeezenet", "pyramidnet")
WARM_UP, STEPS = 6, 20
LOSS = Expression.parse("abs(mul(y, log(f)))")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--precision", choices=["float32", "tf32", "bfloat16"], default="bfloat16")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--profile", action="store_true", help="list the kernels of a meta step")
    options = parser.parse_args()
    console = Console(width=100)
    console.print(f"{measuring.hardware()}, batch 128, {options.precision}, channels last; median of {STEPS} steps")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("model", "training ms", "meta ms", "ratio", "training GiB", "meta GiB", "ratio", "predicted GiB"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for name in options.models.split(","):
        try:
            row = measured(name, options.precision, options.device, options.profile)
        except torch.OutOfMemoryError:
            console.print(f"{name}: out of memory")
            continue
        table.add_row(name, *row)
    console.print(table)


def measured(name: str, precision: Precision, device: str, profiled: bool) -> tuple[str, ...]:
    """Returns milliseconds and memory of a training step and of a meta step."""
    settings = EngineSettings(
        device=device, precision=precision, channels_last=True, population=1, meta_steps=WARM_UP,
        training_steps=WARM_UP,
    )  # fmt: skip
    task = task_of(name)
    before = allocated()
    engine = Engine(task, seed=0, settings=settings)
    reset_peak()
    training = milliseconds(
        lambda steps: engine.run_trials([Trial(WeightedTree(LOSS, None), 0.01, 0)], horizons=[steps])
    )
    training_peak = peak() - before
    predicted = engine.plans[0].predicted_bytes / 2**30
    del engine
    gc.collect()
    reset_peak()
    before = allocated()
    engine = Engine(task, seed=0, settings=settings)
    weights = [[1.0] * LOSS.edges]
    engine.optimise([LOSS], weights)
    optimiser = engine._workspace.optimiser([LOSS])._optimisation
    with engine._context():
        for _ in range(WARM_UP):
            optimiser.step()
        meta = repeated(optimiser.step)
        if profiled:
            show_kernels(optimiser.step)
    meta_peak = peak() - before
    return (
        f"{training:.2f}", f"{meta:.2f}", f"{meta / training:.2f}", f"{training_peak:.2f}", f"{meta_peak:.2f}",
        f"{meta_peak / max(training_peak, 1e-9):.2f}", f"{predicted:.2f}",
    )  # fmt: skip


def milliseconds(run: object) -> float:
    """Returns the time of one further step: the median of five differences of a short and a long run.

    Every run captures its step anew, for about as long as hundreds of steps of a small model take; so the long run
    has as many steps as take two seconds.
    """
    run(WARM_UP)  # type: ignore[operator]
    first = max(seconds(run, WARM_UP + STEPS) - seconds(run, WARM_UP), 1e-3) / STEPS
    further = max(STEPS, min(2000, round(2 / first)))
    differences = [seconds(run, WARM_UP + further) - seconds(run, WARM_UP) for _ in range(5)]
    return statistics.median(differences) / further * 1e3


def seconds(run: object, steps: int) -> float:
    measuring.synchronise()
    begin = time.perf_counter()
    run(steps)  # type: ignore[operator]
    measuring.synchronise()
    return time.perf_counter() - begin


def repeated(step: object) -> float:
    measuring.synchronise()
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        step()  # type: ignore[operator]
        measuring.synchronise()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2] * 1e3


def show_kernels(step: object) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            step()  # type: ignore[operator]
        measuring.synchronise()
    Console(width=140).print(found.key_averages().table(sort_by="cuda_time_total", row_limit=25))


def task_of(name: str) -> Task:
    generator = torch.Generator().manual_seed(0)
    parts = [
        Part(torch.randn(rows, 3, 32, 32, generator=generator), torch.arange(rows) % 10) for rows in (2048, 512, 512)
    ]
    return Task(
        "classification", *parts, model=lambda: make_model(name, (3, 32, 32), 10),
        metric=chosen_metric(None, "classification"), outputs=10, recipe=Recipe(lr=0.01, batch_size=128),
    )  # fmt: skip


def allocated() -> float:
    return torch.cuda.memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


def peak() -> float:
    return torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 0.0


def reset_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
