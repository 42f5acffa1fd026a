"""Run times taken in turns, as a busy machine then slows all alike."""

import math
import platform
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.engine.resolve import resolve_device
from evomal.errors import InputError
from evomal.figures.style import BLUE, GREEN, PURPLE, VERMILLION, figure_style, in_figure, new_figure, sentence_figure
from evomal.losses import LabelSmoothingLoss, SparseLabelSmoothingLoss
from evomal.progress import tracked
from evomal.randomness import torch_generator
from evomal.threads import thread_count

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


BATCH = 100
SMOOTHING = 0.1
CLASSES = (3, 10, 30, 100, 300, 1_000, 3_000, 10_000)
_MOST_CLASSES = 1_000_000

WITH, WITHOUT = "with log-softmax", "without log-softmax"


@dataclass(frozen=True)
class Timing:
    """Seconds of one forward and backward pass."""

    part: str
    """Whether log-softmax is part of it."""
    name: str
    classes: int
    lower: float
    median: float
    upper: float
    """Quartiles and median over the rounds."""


@dataclass(frozen=True)
class SmoothingCost:
    """Run times of one machine."""

    hardware: str
    rounds: int
    timings: tuple[Timing, ...]

    def columns(self) -> dict[str, list[Any]]:
        """A row for each loss, part and number of classes."""
        names = ("part", "name", "classes", "lower", "median", "upper")
        columns: dict[str, list[Any]] = {
            {"name": "loss"}.get(name, name): [getattr(timing, name) for timing in self.timings] for name in names
        }
        return {**columns, "hardware": [self.hardware] * len(self.timings), "rounds": [self.rounds] * len(self.timings)}

    def line(self, part: str, name: str) -> list[Timing]:
        """One loss over the number of classes."""
        return [timing for timing in self.timings if (timing.part, timing.name) == (part, name)]

    def names(self, part: str) -> list[str]:
        """The losses timed in a part."""
        return list(dict.fromkeys(timing.name for timing in self.timings if timing.part == part))


def smoothing_cost(
    classes: Sequence[int] = CLASSES,
    *,
    device: str = "auto",
    rounds: int = 15,
    seconds_a_round: float = 0.02,
    threads: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> SmoothingCost:
    """Time label smoothing for a batch of 100 random logits with random targets (EvoMAL, appendix A.10), ξ = 0.1.

    Within one number of classes all losses are timed in turns, round by round. With log-softmax the input is logits;
    without it, log-probabilities that are there already. Both include the gradient by that input, which has an entry
    for every class: what the sparse loss saves is the arithmetic, not the memory of its gradient.
    """
    for count in classes:
        if not 2 <= count <= _MOST_CLASSES:
            raise InputError(f"classes must be from 2 to {_MOST_CLASSES} but got {count}")
    if not classes:
        raise InputError("classes must be at least one number")
    if rounds < 1:
        raise InputError(f"rounds must be at least 1 but got {rounds}")
    if threads is not None and threads < 1:
        raise InputError(f"threads must be at least 1 but got {threads}")
    place = resolve_device(device)
    with thread_count(threads):
        timings = _timed(classes, place, rounds, seconds_a_round, seed, progress)
        return SmoothingCost(hardware(place), rounds, tuple(timings))


def _timed(
    classes: Sequence[int], place: torch.device, rounds: int, seconds_a_round: float, seed: int, progress: bool
) -> list[Timing]:
    timings: list[Timing] = []
    for count in tracked(classes, "timing", total=len(classes), shown=progress):
        steps = _steps(count, place, seed)
        times = in_turns([step for *_, step in steps], rounds=rounds, seconds_a_round=seconds_a_round)
        for (part, name, _), series in zip(steps, times, strict=True):
            lower, median, upper = (float(bound) for bound in np.quantile(series, (0.25, 0.5, 0.75)))
            timings.append(Timing(part, name, count, lower, median, upper))
    return timings


def dense_of_log_probabilities(log_probabilities: Tensor, target: Tensor, smoothing: float = SMOOTHING) -> Tensor:
    """Label smoothing without its log-softmax: over every class."""
    of_target = log_probabilities.gather(1, target.unsqueeze(1)).squeeze(1)
    return -((1 - smoothing) * of_target + smoothing * log_probabilities.mean(1)).mean()


def sparse_of_log_probabilities(log_probabilities: Tensor, target: Tensor, smoothing: float = SMOOTHING) -> Tensor:
    """Sparse label smoothing without its log-softmax: of the target alone."""
    classes = log_probabilities.shape[1]
    share = 1 - smoothing + smoothing / classes
    of_target = log_probabilities.gather(1, target.unsqueeze(1)).squeeze(1)
    of_rest = torch.log(-torch.expm1(of_target)) - math.log(classes - 1)
    return -(share * of_target + (1 - share) * of_rest).mean()


def _steps(classes: int, device: torch.device, seed: int) -> list[tuple[str, str, Callable[[], None]]]:
    generator = torch_generator(seed, "smoothing cost", classes)
    logits = torch.randn(BATCH, classes, generator=generator).to(device).requires_grad_()
    target = torch.randint(classes, (BATCH,), generator=generator).to(device)
    ready = logits.detach().log_softmax(1).requires_grad_()
    dense, sparse = LabelSmoothingLoss(SMOOTHING), SparseLabelSmoothingLoss(SMOOTHING)
    return [
        (
            WITH,
            "label smoothing (torch)",
            differentiated(lambda: F.cross_entropy(logits, target, label_smoothing=SMOOTHING), logits),
        ),
        (WITH, "label smoothing (evomal)", differentiated(lambda: dense(logits, target), logits)),
        (WITH, "sparse label smoothing", differentiated(lambda: sparse(logits, target), logits)),
        (WITHOUT, "label smoothing", differentiated(lambda: dense_of_log_probabilities(ready, target), ready)),
        (WITHOUT, "sparse label smoothing", differentiated(lambda: sparse_of_log_probabilities(ready, target), ready)),
    ]


if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT = 2.7
_MICRO = 1e6
_STYLES = {
    "label smoothing (torch)": (VERMILLION, "s"),
    "label smoothing (evomal)": (BLUE, "o"),
    "label smoothing": (PURPLE, "D"),
    "sparse label smoothing": (GREEN, "^"),
}


def draw_smoothing_cost(cost: SmoothingCost) -> "Figure":
    """Page wide: with log-softmax on the left, without on the right; median with the quartiles as a band."""
    if not cost.timings:
        return sentence_figure("nothing was timed", "page")
    figure = new_figure("page", _HEIGHT)
    with figure_style():
        panels = figure.subplots(1, 2, sharey=True)
        for axes, part in zip(panels, (WITH, WITHOUT), strict=True):
            for name in cost.names(part):
                line, (colour, marker) = cost.line(part, name), _STYLES[name]
                classes = [timing.classes for timing in line]
                lower, median, upper = (
                    [_MICRO * getattr(timing, bound) for timing in line] for bound in ("lower", "median", "upper")
                )
                axes.fill_between(classes, lower, upper, color=colour, alpha=0.2, linewidth=0)
                axes.plot(classes, median, color=colour, marker=marker, markersize=3, label=name)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("classes $C$")
            axes.set_title(part, loc="left")
        panels[0].set_ylabel("forward and backward (µs)")
        said = f"batch {BATCH}, float32, median of {cost.rounds} rounds in turns, band: quartiles; {cost.hardware}"
        figure.supxlabel("\n".join(textwrap.wrap(in_figure(said), 110)), fontsize=7, x=0.01, ha="left")
        found = [axes.get_legend_handles_labels() for axes in panels]
        entries = {label: handle for handles, labels in found for handle, label in zip(handles, labels, strict=True)}
        figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=len(entries), fontsize=7)
    return figure
