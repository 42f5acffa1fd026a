"""How many random trees are admissible losses, and what it takes to know.

The trees of a first generation, 5 000 of them, with all weights 1; one thread on a CPU, all trees in as few launches as
memory allows on CUDA.
"""

import torch
from measuring import hardware, seconds
from rich.console import Console
from rich.table import Table

from evomal.engine.admissibility import Admissibility
from evomal.expression.generate import ramped_half_and_half
from evomal.randomness import generator

TREES = 5000
SHAPES = (("regression", 1), ("multilabel", 1), *(("classification", classes) for classes in (2, 10, 100)))


def main() -> None:
    torch.set_num_threads(1)
    trees = ramped_half_and_half(TREES, generator=generator(0, "benchmark"))
    weights = [[1.0] * tree.edges for tree in trees]
    for device in ("cpu", *["cuda"] * torch.cuda.is_available()):
        table = Table(title=f"{TREES} random trees, {hardware(device)}", box=None, pad_edge=False, title_justify="left")
        for column in ("task", "outputs", "admissible", "µs per tree"):
            table.add_column(column, justify="left" if column == "task" else "right")
        for kind, outputs in SHAPES:
            check = Admissibility(
                kind, outputs, activation="identity", device=torch.device(device), dtype=torch.float32
            )
            reasons = check.reasons(trees, weights)
            taken = seconds(lambda check=check: check.reasons(trees, weights), 3)
            share = reasons.count("") / TREES
            table.add_row(kind, str(outputs), f"{100 * share:.1f} %", f"{taken / TREES * 1e6:.0f}")
        Console(width=100).print(table, "")


if __name__ == "__main__":
    main()
