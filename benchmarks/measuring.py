"""What the benchmarks share: hardware in words, and times taken in turns, as a busy machine then slows all alike."""

import platform
import time
from collections.abc import Callable, Sequence

import torch

Run = Callable[[], object]


def hardware() -> str:
    """The processor's kind and threads, the GPU where there is one, and torch's version."""
    cpu = f"{platform.machine()}, {torch.get_num_threads()} threads"
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{cpu}{gpu}, torch {torch.__version__}"


def seconds(run: Run, count: int = 1) -> float:
    """Seconds a call, over so many calls, device included."""
    synchronise()
    began = time.perf_counter()
    for _ in range(count):
        run()
    synchronise()
    return (time.perf_counter() - began) / count


def in_turns(runs: Sequence[Run], *, rounds: int, seconds_a_round: float) -> list[list[float]]:
    """Seconds a call, a list of rounds for each run."""
    repeats = []
    for run in runs:
        seconds(run)
        repeats.append(max(1, round(seconds_a_round / seconds(run, 2))))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for series, run, count in zip(times, runs, repeats, strict=True):
            series.append(seconds(run, count))
    return times


def synchronise() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
