"""Whether a search ranks losses alike in two precisions: Kendall's τ over losses of a recorded search.

The losses are distinct ones of the record, spread evenly over its ranking, with the weights that it found. Each is
trained and judged as in a search, in either precision and with two seeds. How far two seeds of one precision agree
bounds what any two rankings can; two precisions with one seed share initial weights and batches.
"""

import argparse
from itertools import combinations

import measuring
from rich.console import Console
from rich.table import Table
from scipy.stats import kendalltau

import evomal
from evomal.engine import Engine, EngineSettings
from evomal.methods.candidates import Candidate, State
from evomal.runs import RunStore

SEEDS = (700_001, 700_002)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="the run folder of a search on the task")
    parser.add_argument("--task", default="cifar10")
    parser.add_argument("--model", default="alexnet")
    parser.add_argument("--precisions", default="bfloat16,float32", help="two names, separated by a comma")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--losses", type=int, default=50)
    parser.add_argument("--steps", type=int, default=500, help="training steps of each loss")
    parser.add_argument("--seeds", type=int, choices=[1, 2], default=2)
    options = parser.parse_args()
    console = Console(width=100)
    chosen = spread(options.folder, options.losses)
    console.print(
        f"{measuring.hardware()}, {options.task}, {options.model}: {len(chosen)} losses, {options.steps} steps"
    )
    task = evomal.load_task(options.task, options.model)
    costs: dict[str, list[float]] = {}
    for seed in SEEDS[: options.seeds]:
        for precision in options.precisions.split(","):
            settings = EngineSettings(
                device=options.device, training_steps=options.steps, precision=precision, channels_last=True
            )
            engine = Engine(task, seed=seed, settings=settings)
            fitnesses = engine.evaluate([one.tree for one in chosen], [one.weights for one in chosen], seed=seed)
            costs[f"{precision}, seed {seed}"] = [fitness.value for fitness in fitnesses]
            console.print(f"{precision}, seed {seed}: {' '.join(f'{fitness.value:.4f}' for fitness in fitnesses)}")
    console.print(agreement(costs))


def spread(folder: str, count: int) -> list[Candidate]:
    """Distinct candidates of a record, from the best to the worst at even distances."""
    with RunStore.read(folder) as store:
        trained = [one for one in store.candidates() if one.state is State.EVALUATED and not one.is_carried]
    ranked = sorted({one.genome: one for one in trained}.values(), key=lambda one: one.fitness)
    count = min(count, len(ranked))
    return [ranked[place * (len(ranked) - 1) // max(1, count - 1)] for place in range(count)]


def agreement(costs: dict[str, list[float]]) -> Table:
    """For each two rankings Kendall's τ, and how many losses are in the best ten of both."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("ranking", "and ranking", "Kendall's τ", "in both best ten", "median difference"):
        table.add_column(column, justify="left" if "ranking" in column else "right")
    for (name, first), (other, second) in combinations(costs.items(), 2):
        best = [set(sorted(range(len(each)), key=each.__getitem__)[:10]) for each in (first, second)]
        gaps = sorted(abs(a - b) for a, b in zip(first, second, strict=True))
        tau = kendalltau(first, second).statistic
        table.add_row(name, other, f"{tau:.3f}", f"{len(best[0] & best[1])}", f"{gaps[len(gaps) // 2]:.4f}")
    return table


if __name__ == "__main__":
    main()
