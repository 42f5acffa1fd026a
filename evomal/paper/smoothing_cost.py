"""The run time of label smoothing against sparse label smoothing (EvoMAL, appendix A.10).

What is compared is timed in turns, so that a busy machine slows everything alike.
"""

import math
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.checks import MOST_SEEDS, MOST_THREADS, whole_number
from evomal.engine.resolve import resolve_device
from evomal.errors import InputError
from evomal.figures import style
from evomal.figures.data import table
from evomal.figures.style import BLUE, GREEN, PURPLE, VERMILLION, Figure
from evomal.losses import LabelSmoothingLoss, SparseLabelSmoothingLoss
from evomal.progress import tracked
from evomal.randomness import torch_generator
from evomal.threads import hardware, thread_count

Run = Callable[[], object]


def seconds(run: Run, count: int = 1) -> float:
    """Return the mean seconds of `count` calls, including the work of the accelerator."""
    synchronise()
    began = time.perf_counter()
    for _ in range(count):
        run()
    synchronise()
    return (time.perf_counter() - began) / count


def in_turns(runs: Sequence[Run], *, rounds: int, seconds_per_round: float) -> list[list[float]]:
    """Return the seconds per call in each round, one list per run; each is called three times before, to warm up."""
    repeats = []
    for run in runs:
        seconds(run)
        repeats.append(max(1, round(seconds_per_round / seconds(run, 2))))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for series, run, count in zip(times, runs, repeats, strict=True):
            series.append(seconds(run, count))
    return times


def differentiated(step: Callable[[], Tensor], leaf: Tensor) -> Callable[[], None]:
    """Return a function that runs the step and its backward pass."""

    def run() -> None:
        leaf.grad = None
        step().backward()  # type: ignore[no-untyped-call]

    return run


def synchronise() -> None:
    """Wait for the accelerator, if there is one."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


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
    """The run times on one machine."""

    hardware: str
    rounds: int
    timings: tuple[Timing, ...]

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per loss, part and number of classes."""
        return table(
            ("part", "loss", "classes", "lower", "median", "upper", "hardware", "rounds"),
            ((t.part, t.name, t.classes, t.lower, t.median, t.upper, self.hardware, self.rounds) for t in self.timings),
        )

    def line(self, part: str, name: str) -> list[Timing]:
        """Return the times of one loss over the number of classes."""
        return [timing for timing in self.timings if (timing.part, timing.name) == (part, name)]

    def names(self, part: str) -> list[str]:
        """Return the losses that were timed in a part."""
        return list(dict.fromkeys(timing.name for timing in self.timings if timing.part == part))


def smoothing_cost(
    classes: Sequence[int] = CLASSES,
    *,
    device: str = "auto",
    rounds: int = 15,
    seconds_per_round: float = 0.02,
    threads: int | None = None,
) -> SmoothingCost:
    """Time label smoothing with ξ = 0.1 for a batch of 100 random logits and targets, forward and backward.

    Args:
        classes: The numbers of classes; for each, all losses are timed in turns.
        device: auto, cpu or cuda.
        rounds: The number of rounds that the median is taken over.
        seconds_per_round: About how long a loss is called in one round.
        threads: The number of CPU threads; None for torch's own setting.

    Returns:
        The times with log-softmax, from logits, and without it, from log-probabilities that exist already. Both
        include the gradient by that input, which has an entry for every class: the sparse loss saves arithmetic, but
        not the memory of its gradient.

    Raises:
        InputError: If a number is out of range.
    """
    for count in classes:
        whole_number("classes", count, at_least=2, at_most=_MOST_CLASSES)
    if not classes:
        raise InputError("classes must be at least one number but got none")
    whole_number("rounds", rounds, at_least=1, at_most=MOST_SEEDS)
    if threads is not None:
        whole_number("threads", threads, at_least=1, at_most=MOST_THREADS)
    place = resolve_device(device)
    timings: list[Timing] = []
    with thread_count(threads):
        for count in tracked(classes, "timing", total=len(classes)):
            steps = _steps(count, place)
            times = in_turns(list(steps.values()), rounds=rounds, seconds_per_round=seconds_per_round)
            for (part, name), series in zip(steps, times, strict=True):
                lower, median, upper = (float(bound) for bound in np.quantile(series, (0.25, 0.5, 0.75)))
                timings.append(Timing(part, name, count, lower, median, upper))
        return SmoothingCost(hardware(place), rounds, tuple(timings))


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


def _steps(classes: int, device: torch.device) -> dict[tuple[str, str], Callable[[], None]]:
    """What is timed, by part and name."""
    generator = torch_generator(0, "smoothing cost", classes)
    logits = torch.randn(BATCH, classes, generator=generator).to(device).requires_grad_()
    target = torch.randint(classes, (BATCH,), generator=generator).to(device)
    ready = logits.detach().log_softmax(1).requires_grad_()
    losses: dict[tuple[str, str], Callable[[Tensor, Tensor], Tensor]] = {
        (WITH, "label smoothing (torch)"): partial(F.cross_entropy, label_smoothing=SMOOTHING),
        (WITH, "label smoothing (evomal)"): LabelSmoothingLoss(SMOOTHING),
        (WITH, "sparse label smoothing"): SparseLabelSmoothingLoss(SMOOTHING),
        (WITHOUT, "label smoothing"): dense_of_log_probabilities,
        (WITHOUT, "sparse label smoothing"): sparse_of_log_probabilities,
    }
    given = {WITH: logits, WITHOUT: ready}
    return {key: differentiated(partial(loss, given[key[0]], target), given[key[0]]) for key, loss in losses.items()}


_HEIGHT = 2.7
_MICRO = 1e6
_STYLES = {
    "label smoothing (torch)": (VERMILLION, "s"),
    "label smoothing (evomal)": (BLUE, "o"),
    "label smoothing": (PURPLE, "D"),
    "sparse label smoothing": (GREEN, "^"),
}


@style.figure_style()
def draw_smoothing_cost(cost: SmoothingCost) -> Figure:
    """Draw the medians, with quartiles as bands: with log-softmax on the left, without on the right."""
    if not cost.timings:
        return style.sentence_figure("nothing was timed", "page")
    figure = style.new_figure("page", _HEIGHT)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, part in zip(panels, (WITH, WITHOUT), strict=True):
        for name in cost.names(part):
            line, (colour, marker) = cost.line(part, name), _STYLES[name]
            classes = [timing.classes for timing in line]
            lower, median, upper = _MICRO * np.array([(one.lower, one.median, one.upper) for one in line]).T
            axes.fill_between(classes, lower, upper, color=colour, alpha=0.2, linewidth=0)
            axes.plot(classes, median, color=colour, marker=marker, markersize=3, label=name)
        axes.loglog()
        axes.set_xlabel("classes $C$")
        axes.set_title(part, loc="left")
    panels[0].set_ylabel("forward and backward (µs)")
    note = f"batch {BATCH}, float32, median of {cost.rounds} rounds in turns, band: quartiles; {cost.hardware}"
    figure.supxlabel("\n".join(textwrap.wrap(style.figure_text(note), 110)), fontsize=7, x=0.01, ha="left")
    found = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in panels]
    entries = {label: handle for pairs in found for handle, label in pairs}
    figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=len(entries), fontsize=7)
    return figure
