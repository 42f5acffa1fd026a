"""Sparse label smoothing against torch's label smoothing: time and peak memory of forward and backward.

Both are measured in turns within one run, so that a busy machine slows both; the ratio is what counts. Batch 100 and
ξ = 0.1 as in the paper's appendix. Memory is the peak above the logits, in multiples of the logits' size. On CUDA a
batch of 100 is over sooner than its kernels are launched; CUDA graphs show the device's own time.

Then the speed-up of evomal's fused losses for many sizes, against torch's own loss where it has the same, else against
plain operations as people write them, which lose digits where p is close to 1. `OMP_NUM_THREADS=1` shows one thread.
"""

import argparse
import functools
import math
import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from measuring import differentiated, hardware, in_turns
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from evomal.losses import AbsoluteCrossEntropyLoss, FocalLoss, LabelSmoothingLoss, SparseLabelSmoothingLoss

BATCH, SMOOTHING = 100, 0.1
CLASSES = (10, 100, 1_000, 10_000, 100_000)
ROUNDS = 15
SECONDS_PER_ROUND = 0.05

BATCHES = (32, 100, 128, 512, 2_048)
CLASSES_BY_BATCH = (2, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)
ROUNDS_BY_BATCH, SECONDS_BY_BATCH = 9, 0.004

Step = Callable[[], None]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def plain_sparse(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    classes = logits.shape[1]
    share = 1 - SMOOTHING + SMOOTHING / classes
    log_p = -F.cross_entropy(logits, target, reduction="none")
    return -(share * log_p + (1 - share) * (torch.log(-torch.expm1(log_p)) - math.log(classes - 1))).mean()


def plain_absolute(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (math.log(1.2) - F.cross_entropy(logits, target, reduction="none")).abs().mean()


def plain_focal(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    cross_entropy = F.cross_entropy(logits, target, reduction="none")
    return ((1 - torch.exp(-cross_entropy)) ** 2 * cross_entropy).mean()


PAIRS: dict[str, tuple[Loss, Loss]] = {
    "ce": (torch.nn.CrossEntropyLoss(), AbsoluteCrossEntropyLoss(phi1=1.0)),
    "smoothed": (torch.nn.CrossEntropyLoss(label_smoothing=SMOOTHING), LabelSmoothingLoss(SMOOTHING)),
    "absolute": (plain_absolute, AbsoluteCrossEntropyLoss(phi1=1.2)),
    "sparse": (plain_sparse, SparseLabelSmoothingLoss(SMOOTHING)),
    "focal": (plain_focal, FocalLoss(2.0)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only this device")
    chosen = parser.parse_args().device
    console = Console(width=100)
    memory_and_time(console, chosen)
    for device in [chosen] if chosen else ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        for backward in (True, False):
            by_size(console, device, backward=backward)


def by_size(console: Console, device: str, *, backward: bool) -> None:
    passes = "forward and backward" if backward else "forward only"
    title = (
        f"speed-up with quartiles over {ROUNDS_BY_BATCH} rounds, {passes}, float32\n{hardware(device)}\n"
        "against torch: ce (absolute, phi1 = 1) and smoothed; against plain operations: the others"
    )
    table = Table(title=title, box=None, pad_edge=False, header_style="bold", title_justify="left")
    for column in ("batch", "classes", *PAIRS):
        table.add_column(column, justify="right", no_wrap=True)
    for batch in BATCHES:
        for classes in CLASSES_BY_BATCH:
            ratios = (speed_up(device, batch, classes, pair, backward=backward) for pair in PAIRS.values())
            table.add_row(f"{batch:,}", f"{classes:,}", *ratios)
    console.print(table, "")


def speed_up(device: str, batch: int, classes: int, pair: tuple[Loss, Loss], *, backward: bool) -> str:
    """The median of the ratios of the rounds, and their quartiles."""
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(batch, classes, generator=generator).to(device).requires_grad_(backward)
    target = torch.randint(classes, (batch,), generator=generator).to(device)
    steps = [functools.partial(loss, logits, target) for loss in pair]
    runs = [differentiated(step, logits) for step in steps] if backward else steps
    times = in_turns(runs, rounds=ROUNDS_BY_BATCH, seconds_per_round=SECONDS_BY_BATCH)
    lower, median, upper = statistics.quantiles((theirs / ours for theirs, ours in zip(*times, strict=True)), n=4)
    return f"{median:.2f} {lower:.1f}-{upper:.1f}"


def memory_and_time(console: Console, device: str | None) -> None:
    for mode in ("cpu", "cuda", "cuda graphs"):
        if device is not None and not mode.startswith(device):
            continue
        if mode != "cpu" and not torch.cuda.is_available():
            console.print(f"{mode}: not measured, there is no CUDA device")
            continue
        table = Table(title=description(mode), box=None, pad_edge=False, header_style="bold", title_justify="left")
        for column in ("classes", "torch µs", "evomal µs", "speed-up", "range", "torch mem", "evomal mem"):
            table.add_column(column, justify="right", no_wrap=True)
        for classes in CLASSES:
            table.add_row(*row(mode, classes))
        console.print(table, "")


def description(mode: str) -> str:
    device = mode.split()[0]
    return (
        f"label smoothing, forward and backward, batch {BATCH}, float32\n{mode}: {hardware(device)}, "
        f"median of {ROUNDS} rounds"
    )


def row(mode: str, classes: int) -> list[str]:
    device = mode.split()[0]
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(BATCH, classes, generator=generator).to(device).requires_grad_()
    target = torch.randint(classes, (BATCH,), generator=generator).to(device)
    sparse = SparseLabelSmoothingLoss(SMOOTHING)
    steps = (
        lambda: F.cross_entropy(logits, target, label_smoothing=SMOOTHING),
        lambda: sparse(logits, target),
    )
    runs = [differentiated(step, logits) for step in steps]
    times = in_turns(
        [captured(run) for run in runs] if mode == "cuda graphs" else runs,
        rounds=ROUNDS,
        seconds_per_round=SECONDS_PER_ROUND,
    )
    ratios = sorted(reference / ours for reference, ours in zip(*times, strict=True))
    medians = [1e6 * statistics.median(series) for series in times]
    memory = [peak_memory(run, logits) / (logits.numel() * logits.element_size()) for run in runs]
    return [
        f"{classes:,}",
        f"{medians[0]:,.0f}",
        f"{medians[1]:,.0f}",
        f"{medians[0] / medians[1]:.2f}×",
        f"{ratios[0]:.2f}-{ratios[-1]:.2f}",
        f"{memory[0]:.1f}×",
        f"{memory[1]:.1f}×",
    ]


def captured(run: Step) -> Step:
    """The run as a CUDA graph: what the device itself takes, without the launches."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def peak_memory(run: Step, logits: torch.Tensor) -> int:
    """Bytes allocated at the worst moment of a run, above what was there before."""
    run()
    logits.grad = None
    if logits.is_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    changes = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        peak = max(peak, held)
    return peak


if __name__ == "__main__":
    main()
