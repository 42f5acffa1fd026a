"""Run times taken in turns, as a busy machine then slows all alike."""

import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

Run = Callable[[], object]


def hardware(device: torch.device | str | None = None) -> str:
    """What the device is, or all that is there, with torch's version."""
    threads = torch.get_num_threads()
    cpu = f"{_processor()}, {threads} thread{'s' * (threads != 1)}"
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    kind = None if device is None else torch.device(device).type
    names = {"cpu": cpu, "cuda": gpu}.get(kind, kind) if kind else ", ".join(filter(None, (cpu, gpu)))
    return f"{names}, torch {torch.__version__}"


def seconds(run: Run, count: int = 1) -> float:
    """Seconds a call, over so many calls, device included."""
    synchronise()
    began = time.perf_counter()
    for _ in range(count):
        run()
    synchronise()
    return (time.perf_counter() - began) / count


def in_turns(runs: Sequence[Run], *, rounds: int, seconds_a_round: float) -> list[list[float]]:
    """Seconds a call, a list of rounds for each run; each is called a few times before, to warm up."""
    repeats = []
    for run in runs:
        seconds(run)
        repeats.append(max(1, round(seconds_a_round / seconds(run, 2))))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for series, run, count in zip(times, runs, repeats, strict=True):
            series.append(seconds(run, count))
    return times


def differentiated(step: Callable[[], Tensor], leaf: Tensor) -> Callable[[], None]:
    """Forward and backward: the step, and the gradient of what it returns by the leaf."""

    def run() -> None:
        leaf.grad = None
        step().backward()  # type: ignore[no-untyped-call]

    return run


def synchronise() -> None:
    """Wait for the accelerator, where there is one."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def _processor() -> str:
    """The processor's name where the system tells it, else its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
