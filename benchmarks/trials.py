"""Losses × learning rates × seeds as one list of trials, against one learning rate and one seed after the other.

The reference is how comparisons were trained before there were trials: on CUDA an engine for each seed and learning
rate, which stacks the losses; on a CPU each training by itself. It is run for a share of its trainings and scaled up:
what it leaves out is more of the same. The data are random, as speed does not depend on them.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import measuring
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from evomal.engine import Engine, EngineSettings, Trial, train
from evomal.expression.generate import ramped_half_and_half
from evomal.losses import ExpressionLoss
from evomal.losses.expression_loss import starting_weights
from evomal.losses.loss import WeightedTree
from evomal.randomness import generator
from evomal.tasks.models import make_model
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task

LOSSES, RATES, SEEDS, STEPS = 40, tuple(0.01 * 10 ** (power / 2) for power in range(-3, 4)), (0, 1, 2), 2000


@dataclass(frozen=True)
class Case:
    """A model and its data; `share` of the steps is run on a CPU, which does not stack models where it is 0."""

    name: str
    model: str
    inputs: tuple[int, ...]
    classes: int
    rows: int
    share: float


CASES = (
    Case("mlp 784-128-128-10", "mlp:hidden=128", (784,), 10, 25_000, 0.01),
    Case("diabetes 10-64-64-1", "mlp:hidden=64", (10,), 0, 442, 0.1),
    Case("lenet5 1×28×28", "lenet5", (1, 28, 28), 10, 25_000, 0.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only this device")
    parser.add_argument("--case", default="", help="only cases whose name has this text")
    options = parser.parse_args()
    console = Console(width=100)
    count = LOSSES * len(RATES) * len(SEEDS)
    console.print(f"{measuring.hardware()}; {count} trials of {STEPS} steps: {LOSSES} losses, {len(RATES)} rates, "
                  f"{len(SEEDS)} seeds")  # fmt: skip
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("device", "model", "one by one s", "trials s", "speed-up", "stack"):
        table.add_column(heading, justify="left" if heading in ("device", "model") else "right")
    for device in ("cpu", "cuda"):
        if options.device not in (None, device) or (device == "cuda" and not torch.cuda.is_available()):
            continue
        for case in CASES:
            if options.case in case.name and (device == "cuda" or case.share):
                before, now, chunk = measured(case, device)
                table.add_row(device, case.name, f"{before:.1f}", f"{now:.1f}", f"{before / now:.1f}×", str(chunk))
    console.print(table)


def measured(case: Case, device: str) -> tuple[float, float, int]:
    """Returns the seconds of all trials by the reference and as one list, and the size of a stack."""
    task, losses = task_of(case), population()
    steps = STEPS if device == "cuda" else max(20, int(case.share * STEPS))
    engine = make_engine(task, device, steps)
    trials = [Trial(loss, rate, seed) for seed in SEEDS for loss in losses for rate in RATES]
    engine.run_trials(trials[:2], horizons=[2])  # kernels are compiled
    now = timed(lambda: engine.run_trials(trials, horizons=[steps]))
    if device == "cuda":
        pairs = [(seed, rate) for seed in SEEDS for rate in RATES][::4]
        spent = timed(lambda: [one_engine_each(task, losses, seed, rate, steps) for seed, rate in pairs])
        before = spent * len(SEEDS) * len(RATES) / len(pairs)
    else:
        some = trials[:: len(trials) // 8]
        spent = timed(lambda: [one_training(task, trial, steps) for trial in some])
        before = spent * len(trials) / len(some)
    return before * STEPS / steps, now * STEPS / steps, engine.plans[0].trial_chunk


def one_engine_each(task: Task, losses: Sequence[WeightedTree], seed: int, rate: float, steps: int) -> None:
    make_engine(task, "cuda", steps).run_trials([Trial(loss, rate, seed) for loss in losses])


def one_training(task: Task, trial: Trial, steps: int) -> None:
    assert isinstance(trial.loss, WeightedTree)
    loss = ExpressionLoss(trial.loss.expression, weights=trial.loss.weights, kind=task.kind)
    train(task, loss, seed=trial.seed, lr=trial.lr, steps=steps, device="cpu", curve_points=1, test=False)


def make_engine(task: Task, device: str, steps: int) -> Engine:
    settings = EngineSettings(device=device, training_steps=steps, meta_steps=1, population=LOSSES)
    return Engine(task, seed=0, settings=settings)


def timed(work: Callable[[], object]) -> float:
    measuring.synchronise()
    begin = time.perf_counter()
    work()
    measuring.synchronise()
    return time.perf_counter() - begin


def task_of(case: Case) -> Task:
    draws = np.random.default_rng(0)
    x = draws.normal(size=(case.rows, *case.inputs)).astype(np.float32)
    y = draws.integers(case.classes, size=case.rows) if case.classes else draws.normal(size=case.rows)
    kind = "classification" if case.classes else "regression"
    outputs = max(1, case.classes)
    return Task.from_arrays(
        x, y, model=lambda: make_model(case.model, case.inputs, outputs), kind=kind,
        recipe=Recipe(lr=0.01, batch_size=128),
    )  # fmt: skip


def population() -> list[WeightedTree]:
    trees = ramped_half_and_half(LOSSES, generator=generator(0, "benchmark"))
    draws = generator(0, "weights")
    return [WeightedTree(tree, starting_weights(tree, generator=draws)) for tree in trees]


if __name__ == "__main__":
    main()
