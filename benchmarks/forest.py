"""A forest's compiled kernels against plain torch operations: gradients, mixed gradients, descent.

Both are measured in turns within one run, so that a busy machine slows both; the ratio is what counts. 25 trees of 5 to
60 nodes, batch 128; the descent is the rejection filter's, 100 samples and 1000 steps. Torch operations take it a few
steps only, and their time is scaled up. On CUDA torch operations are launched from Python as in eager mode, and the
kernels captured once and replayed, as a search does.
"""

import argparse
import platform
import statistics
from collections.abc import Callable

import torch
from measuring import in_turns
from rich.console import Console
from rich.table import Table

from evomal.engine.cuda_graphs import GraphedStep
from evomal.expression import Expression
from evomal.expression.generate import ramped_half_and_half
from evomal.forest import Forest
from evomal.randomness import generator

TREES, SIZES = 25, (5, 60)
BATCH, FILTER_SAMPLES, FILTER_STEPS, STEPS_OF_TORCH = 128, 100, 1000, 5
SHAPES = (("regression", 1), ("classification", 1), ("classification", 10))
ROUNDS = 15
SECONDS_PER_ROUND = 0.02

Run = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only this device")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    console = Console(width=100)
    trees = drawn_trees()
    for device in ("cpu", "cuda"):
        if options.device not in (None, device):
            continue
        if device == "cuda" and not torch.cuda.is_available():
            console.print("cuda: not measured, there is no CUDA device")
            continue
        table = Table(title=description(device, trees, options.rounds), box=None, pad_edge=False, title_justify="left")
        for column in ("task", "what", "torch µs", "evomal µs", "speed-up", "range"):
            table.add_column(column, justify="left" if column in ("task", "what") else "right", no_wrap=True)
        for kind, outputs in SHAPES:
            for what, (reference, ours), scale in comparisons(trees, kind, outputs, device):
                table.add_row(f"{kind}, {outputs}", what, *measured(reference, ours, scale, device, options.rounds))
        console.print(table, "")


def drawn_trees() -> list[Expression]:
    """Sizes spread evenly over the range."""
    found = ramped_half_and_half(2000, heights=(2, 6), generator=generator(0, "benchmark"))
    by_size = {tree.size: tree for tree in found if SIZES[0] <= tree.size <= SIZES[1]}
    sizes = sorted(by_size)
    return [by_size[sizes[place * (len(sizes) - 1) // (TREES - 1)]] for place in range(TREES)]


def description(device: str, trees: list[Expression], rounds: int) -> str:
    name = (
        torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {torch.get_num_threads()} threads"
    )
    sizes = [tree.size for tree in trees]
    return (
        f"{TREES} trees of {min(sizes)} to {max(sizes)} nodes, {statistics.mean(sizes):.0f} on average, batch {BATCH}, "
        "float32\n"
        f"descent: {FILTER_SAMPLES} samples, {FILTER_STEPS} steps (torch: {STEPS_OF_TORCH} steps, scaled up)\n"
        f"{device}: {name}, torch {torch.__version__}, median of {rounds} rounds"
    )


def comparisons(
    trees: list[Expression], kind: str, outputs: int, device: str
) -> list[tuple[str, tuple[Run, Run], float]]:
    """What is measured, how by torch and by the kernels, and the factor on torch's time."""
    rng = torch.Generator().manual_seed(outputs)
    z, tangents = (torch.randn(TREES, BATCH, outputs, generator=rng).to(device) for _ in range(2))
    if kind == "regression":
        targets = torch.randn(BATCH, outputs, generator=rng).to(device)
    else:
        targets = torch.randint(max(2, outputs), (BATCH,), generator=rng).to(device)
    few, few_targets = z[:, :FILTER_SAMPLES].contiguous(), targets[:FILTER_SAMPLES]
    forests = [
        Forest(trees, kind=kind, outputs=outputs, device=device, backend=backend) for backend in ("torch", "auto")
    ]
    weights = torch.ones(TREES, forests[0].width, device=device)

    def gradients(forest: Forest) -> Run:
        return lambda: forest.gradients(z, targets, weights)

    def mixed(forest: Forest) -> Run:
        return lambda: forest.mixed_gradients(z, targets, tangents, weights)

    def descent(forest: Forest, steps: int) -> Run:
        return lambda: forest.descended(few, few_targets, weights, steps=steps, lr=0.01)

    plain, compiled = forests
    return [
        ("gradients", (gradients(plain), gradients(compiled)), 1.0),
        ("mixed", (mixed(plain), mixed(compiled)), 1.0),
        ("descent", (descent(plain, STEPS_OF_TORCH), descent(compiled, FILTER_STEPS)), FILTER_STEPS / STEPS_OF_TORCH),
    ]


def measured(reference: Run, ours: Run, scale: float, device: str, rounds: int) -> list[str]:
    if device == "cuda":
        ours = captured(ours)
    plain, compiled = in_turns((reference, ours), rounds=rounds, seconds_per_round=SECONDS_PER_ROUND)
    plain = [scale * seconds for seconds in plain]
    ratios = sorted(one / other for one, other in zip(plain, compiled, strict=True))
    medians = [1e6 * statistics.median(series) for series in (plain, compiled)]
    return [
        *(f"{median:,.0f}" for median in medians),
        f"{medians[0] / medians[1]:.1f}×",
        f"{ratios[0]:.1f}-{ratios[-1]:.1f}",
    ]


def captured(run: Run) -> Run:
    """The same as a CUDA graph."""

    def once() -> None:
        run()

    step = GraphedStep(once, device=torch.device("cuda"))
    while not step.captured:
        step()
        if step.refusal:
            raise RuntimeError(step.refusal)
    return step


if __name__ == "__main__":
    main()
