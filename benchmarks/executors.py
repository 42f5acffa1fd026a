"""What spreading candidates over Ray's workers costs, and what it gains.

Pools of 1, 2 and 4 workers run at once, on a cluster of this machine, and are measured in turns. Candidates that do
nothing show what handing them out costs; candidates that sleep show what waiting adds where processors are no limit;
candidates that train show what is gained on the processors there are, beside one process with one thread. The cost of
handing out is fitted by least squares as a fixed time a stage and a time a piece, and with it a large search is
reckoned.
"""

import argparse
import contextlib
import itertools
import logging
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import measuring
import numpy as np
import ray
import torch
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls

from evomal.engine import Engine
from evomal.engine.plans import EngineSettings
from evomal.expression.generate import ramped_half_and_half
from evomal.losses.expression_loss import starting_weights
from evomal.randomness import generator
from evomal.runs.executors import LocalExecutor, PoolExecutor, WorkerPool, worker_pool
from evomal.runs.executors.jobs import JobQueue
from evomal.settings import SearchSettings
from evomal.tasks import Task

WORKERS = (1, 2, 4)
ROWS = (1, 8, 25, 100, 400)
SLEEP = 0.02
ROUNDS = 5
SPREAD_STAGES, WHOLE_STAGES = 2, 3  # optimised and trained piece by piece; the filters on CUDA in one piece
FILTER = 0.006 / 25  # seconds a candidate of the longest filter, all on one H200: docs/performance.md
CANDIDATES, GPUS, POPULATION = 10_000, 1_000, 1_000
# Seconds of a candidate on an H200, optimised and trained by the paper's settings: alone there, and among hundreds,
# which are stacked where the model can be (docs/performance.md).
ON_A_GPU = {"MLP 1000, float32": (0.114, 0.021), "LeNet-5, float32": (0.232, 0.024), "ResNet-18, TF32": (7.1, 7.1)}


class Idle:
    """Does nothing, or sleeps, for each row."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def describe(self) -> dict[str, Any]:
        return {}

    def run(self, jobs: list[int]) -> list[int]:
        time.sleep(self._seconds * len(jobs))
        return jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    console = Console(width=100)
    console.print(f"{measuring.hardware()}, {os.cpu_count()} processors, Ray {ray.__version__}, {rounds} rounds")
    started = measuring.seconds(start)
    try:
        with contextlib.ExitStack() as stack:
            pools: dict[int, WorkerPool] = {}
            started_in = {}
            for workers in WORKERS:
                begin = time.perf_counter()
                settings = SearchSettings(executor="ray", workers=workers)
                pools[workers] = stack.enter_context(worker_pool(settings))
                pools[workers].prepare(Idle, 0.0)
                started_in[workers] = time.perf_counter() - begin
            begun = ", ".join(f"{count} workers in {taken:.1f} s" for count, taken in started_in.items())
            console.print(f"a cluster started in {started:.1f} s; {begun}\n")
            fixed, each = show_overhead(console, pools, rounds)
            show_waiting(console, pools, rounds)
            show_training(console, pools, rounds)
    finally:
        ray.shutdown()
    show_model(console, fixed, each)


def start() -> None:
    ray.init(
        address="local", num_cpus=sum(WORKERS), include_dashboard=False, log_to_driver=False,
        logging_level=logging.ERROR, object_store_memory=100 * 2**20,
    )  # fmt: skip


def show_overhead(console: Console, pools: dict[int, WorkerPool], rounds: int) -> tuple[float, float]:
    for pool in pools.values():
        pool.prepare(Idle, 0.0)
    cases = list(itertools.product(ROWS, WORKERS))
    runs = [lambda rows=rows, pool=pools[workers]: run_rows(pool, rows) for rows, workers in cases]
    times = dict(zip(cases, in_turns(runs, rounds), strict=True))
    table = Table(title="Candidates that do nothing: ms a candidate (range)", box=None, title_justify="left")
    for heading in ("candidates", *(f"{workers} workers" for workers in WORKERS)):
        table.add_column(heading, justify="right")
    for rows in ROWS:
        table.add_row(str(rows), *(spanned([taken / rows * 1e3 for taken in times[rows, w]]) for w in WORKERS))
    console.print(table)
    pieces = np.array([[1.0, pieces_of(rows, workers)] for rows, workers in cases])
    middle = np.array([statistics.median(times[case]) for case in cases])
    (fixed, each), _ = nnls(pieces, middle)
    console.print(f"fitted: {fixed * 1e3:.2f} ms a stage and {each * 1e3:.2f} ms a piece\n")
    return float(fixed), float(each)


def show_waiting(console: Console, pools: dict[int, WorkerPool], rounds: int) -> None:
    rows = 50
    for pool in pools.values():
        pool.prepare(Idle, SLEEP)
    times = in_turns([lambda pool=pool: run_rows(pool, rows) for pool in pools.values()], rounds)
    table = Table(
        title=f"{rows} candidates that sleep {SLEEP * 1e3:g} ms each: ms beside sleeping, a candidate",
        box=None, title_justify="left",
    )  # fmt: skip
    for heading in ("workers", "seconds", "least possible", "ms a candidate"):
        table.add_column(heading, justify="right")
    for workers, series in zip(pools, times, strict=True):
        least = -(-rows // workers) * SLEEP
        beside = [(taken - least) / rows * 1e3 for taken in series]
        table.add_row(str(workers), f"{statistics.median(series):.3f}", f"{least:.3f}", spanned(beside))
    console.print(table, "")


def show_training(console: Console, pools: dict[int, WorkerPool], rounds: int) -> None:
    task, settings = looped_task(), EngineSettings(
        population=24, meta_steps=20, training_steps=200, population_mode="looped", device="cpu"
    )  # fmt: skip
    rng = generator(0, "benchmark")
    trees = list(ramped_half_and_half(24, generator=rng))
    weights = [starting_weights(tree, generator=rng) for tree in trees]
    executors = {"one process": LocalExecutor(Engine(task, seed=0, settings=settings))}
    for workers, pool in pools.items():
        executors[f"{workers} workers"] = PoolExecutor(pool, [task], seed=0, settings=settings)  # type: ignore[assignment]
    for stage in ("optimise", "evaluate"):
        results = [executor.run(stage, trees, weights) for executor in executors.values()]
        same = all(found == results[0] for found in results)
        runs = [
            lambda executor=executor, stage=stage: executor.run(stage, trees, weights)
            for executor in executors.values()
        ]
        times = in_turns(runs, rounds)
        title = f"{stage}: 24 candidates, MLP of 200 units, looped, one thread; results {'equal' if same else 'DIFFER'}"
        table = Table(title=title, box=None, title_justify="left")
        for heading in ("", "seconds", "of one worker (range)", "of one process (range)"):
            table.add_column(heading, justify="right")
        for name, series in zip(executors, times, strict=True):
            ratios = [
                spanned([b / a for a, b in zip(series, times[other], strict=True)], "×") if name != skipped else ""
                for other, skipped in ((1, "one process"), (0, "one process"))
            ]
            table.add_row(name, f"{statistics.median(series):.2f}", *ratios)
        console.print(table, "")


def show_model(console: Console, fixed: float, each: float) -> None:
    generations = CANDIDATES // POPULATION
    spread_out = SPREAD_STAGES * (fixed + each * pieces_of(POPULATION, GPUS))
    handing = spread_out + WHOLE_STAGES * (fixed + each + FILTER * POPULATION)
    table = Table(
        title=f"{CANDIDATES} candidates as {generations} generations of {POPULATION} on {GPUS} GPUs, all of them "
        "optimised and trained (reckoned, not measured)",
        box=None, title_justify="left",
    )  # fmt: skip
    for heading in ("model", "computing s", "handing out, filters s", "all", "GPU hours", "one GPU alone", "busy"):
        table.add_column(heading, justify="right")
    for name, (seconds, among_others) in ON_A_GPU.items():
        computing = generations * seconds * -(-POPULATION // GPUS)
        whole = computing + generations * handing
        alone = CANDIDATES * among_others
        table.add_row(
            name, f"{computing:.0f}", f"{generations * handing:.0f}", f"{whole / 60:.1f} min",
            f"{whole * GPUS / 3600:.1f}", f"{alone / 3600:.2f} h", f"{computing / whole:.0%}",
        )  # fmt: skip
    console.print(table)


def in_turns(runs: list[Callable[[], object]], rounds: int) -> list[list[float]]:
    for run in runs:
        run()
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for series, run in zip(times, runs, strict=True):
            series.append(measuring.seconds(run))
    return times


def run_rows(pool: WorkerPool, rows: int) -> list[tuple[int, Any]]:
    return list(pool.run(range(rows)))


def pieces_of(rows: int, workers: int) -> int:
    """Into how many pieces so many candidates are cut where all workers are equally fast."""
    queue, count = JobQueue(rows, chunk=1, retries=0), 0
    while queue:
        queue.take(workers)
        count += 1
    return count


def spanned(values: list[float], unit: str = "") -> str:
    return f"{statistics.median(values):.2f}{unit} ({min(values):.2f}–{max(values):.2f})"


def looped_task() -> Task:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(442, 10))

    def network() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(10, 200), torch.nn.ReLU(), torch.nn.Linear(200, 1))

    return Task.from_arrays(x, x @ rng.normal(size=10), model=network, kind="regression")


if __name__ == "__main__":
    main()
