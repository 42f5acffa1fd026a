"""Whether a fitness ranks losses as the verdict would: rank correlations with the truth, for a pool of losses.

The pool are distinct losses of the first generations of a short search. The truth of a loss is its test cost after 2
000 steps, the mean of 5 fresh seeds, at the best of nine learning rates on validation (2 other seeds). Every loss is
also trained at seven learning rates with `--seeds` seeds, each on a split of its own where rows are exchangeable, and
judged on validation after the steps of every rung. From these costs follows what any rungs would have said: Kendall's τ
with the truth over the whole pool and among the fitness's own top fifty, and how good the losses are that it puts into
its top tenth (their mean place in the truth: 0.05 would be perfect, 0.5 chance), with the training steps that it took.
All of it is the mean over draws of the seeds that belong to the rungs. The truth is measured `--truths` times, each
time with other seeds and, where rows are exchangeable, other splits: fitnesses are compared with the mean, and each
single truth with the mean of the others, which shows how much of it is noise.

The losses are those of a search with `quick`, with or without the trees that it refuses as inadmissible, or those of a
search with the settings of the paper: 100 candidates in each generation, 100 meta steps.

`--out FILE` keeps the costs; `--costs FILE…` prints the table of such files without training anything, and `--table
FILE` writes it for docs/results/data.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import torch
from scipy.stats import kendalltau
from searches import STEPS, TASKS, TEST_SEEDS, TUNING_SEEDS

import evomal
from evomal.campaigns.tables import MeasuredTable
from evomal.engine import Engine, EngineSettings, Rung, Trial
from evomal.losses.loss import WeightedTree
from evomal.methods.candidates import State
from evomal.methods.rungs import spaced_rates
from evomal.runs import RunStore
from evomal.tasks.task import Task

TOP = 50
DRAWS = 20
RATES = spaced_rates(7)
FIRST_SEED = 800_001
PAPER_STEPS = 500
TRUTH_RATES = 9
REPEATED = 1000  # added to the seeds, and to the first split, of each further truth


@dataclass(frozen=True)
class Ladder:
    """Rungs as a search has them: steps and number of seeds of each, learning rates of the first, share that rises."""

    rungs: tuple[tuple[int, int], ...]
    rates: int = 3
    share: float = 1 / 3
    further: tuple[int, int] = (1, 0)
    """Learning rates on further rungs, below and above the best one."""

    @classmethod
    def of_preset(cls, name: str) -> "Ladder":
        settings = evomal.SearchSettings.preset(name)
        steps = (round(part * settings.training_steps) for part in settings.rungs)
        return cls(tuple(zip(steps, settings.rung_seeds, strict=True)), settings.tried_rates, settings.rung_share)

    def __str__(self) -> str:
        rungs = " → ".join(f"{steps} steps × {seeds}" for steps, seeds in self.rungs)
        rates = f"{self.rates} rates, then {sum(self.further) + 1}" if len(self.rungs) > 1 else f"{self.rates} rates"
        return f"{rungs}, {rates}"

    def ranked(self, costs: np.ndarray, horizons: Sequence[int]) -> tuple[list[int], int]:
        """The losses, best first, by costs `[loss, horizon, seed, rate]`, and the training steps that it took.

        The rungs take the seeds in their order, each other ones.
        """
        middle, taken, first = len(RATES) // 2, 0, 0
        around = np.full(len(costs), middle)
        going, order = list(range(len(costs))), []
        for number, (steps, seeds) in enumerate(self.rungs):
            lower, higher = self.further if number else ((self.rates - 1) // 2, self.rates // 2)
            rates = lower + 1 + higher
            own = costs[:, horizons.index(steps), first : first + seeds].mean(1)
            first += seeds
            taken += len(going) * rates * seeds * steps
            found = {}
            for loss in going:
                low = min(max(0, around[loss] - lower), len(RATES) - rates)
                window = own[loss, low : low + rates]
                around[loss] = low + int(window.argmin())
                found[loss] = float(window.min())
            ranked = sorted((loss for loss in going if math.isfinite(found[loss])), key=lambda loss: found[loss])
            lost = [loss for loss in going if not math.isfinite(found[loss])]
            is_last = number == len(self.rungs) - 1
            count = len(ranked) if is_last else math.ceil(self.share * len(ranked))
            order = [*ranked[count:], *lost, *order]
            going = ranked[:count]
        return [*going, *order], taken


OTHERS = (
    Ladder(((100, 1), (400, 2)), rates=3, further=(1, 1)),
    Ladder(((250, 1), (1000, 2), (2000, 4)), rates=5, further=(1, 1)),
    Ladder(((2000, 4),), rates=5),
)
"""What the presets had before, and everything at full length."""


POOLS = {
    "admissible": "",
    "all": ", with trees that a search refuses as inadmissible",
    "paper": " with the paper's settings, 100 candidates in each generation and 100 meta steps",
}
"""The losses that are ranked, and what the table says of them."""
TITLES = {"admissible": "", "all": " All trees", "paper": " A search of the paper"}


def pool(
    task: Task, count: int, device: str, folder: str, *, of: str = "admissible", first_trees: int = 6000
) -> list[WeightedTree]:
    """Distinct losses of the first generations of a search.

    Those of `quick` are trained for a few steps; those of the paper as it does, and taken from all six generations.
    """
    if of == "paper":
        settings = evomal.SearchSettings.preset(
            "paper", population=100, generations=6, meta_steps=100, finalists=0, device=device
        )
    else:
        settings = evomal.SearchSettings.preset(
            "quick", population=max(25, count // 3), generations=6, first_trees=first_trees, training_steps=20,
            tried_rates=1, rungs=(1.0,), rung_seeds=(1,), finalists=0, device=device,
        )  # fmt: skip
    if of == "all":
        kept = tuple(one for one in settings.filters if one != "admissible")
        settings = settings.model_copy(update={"filters": kept})
    evomal.search(task, settings=settings, seed=77, folder=folder)
    with RunStore.read(folder) as store:
        trained = [one for one in store.candidates() if one.state is State.EVALUATED and not one.is_carried]
    distinct = {one.fingerprint or one.genome: one for one in reversed(trained)}
    in_order = sorted(distinct.values(), key=lambda one: (one.generation, one.index))
    every = max(1.0, len(in_order) / count) if of == "paper" else 1
    chosen = [in_order[int(place * every)] for place in range(min(count, len(in_order)))]
    return [WeightedTree(one.tree, list(one.weights)) for one in chosen]


def truth_of(engine: Engine, losses: list[WeightedTree], number: int) -> list[float]:
    """The test cost of each loss at its learning rate that is best on validation.

    `number`: those from 1 on have other seeds and, where rows are exchangeable, other splits of training and
    validation rows; the test rows are the same.
    """
    task, rates, shift = engine.tasks[0], spaced_rates(TRUTH_RATES), number * REPEATED
    tuning, testing = (tuple(seed + shift for seed in seeds) for seeds in (TUNING_SEEDS, TEST_SEEDS))
    first = shift if task.exchangeable else 0
    splits = [first + place if first else 0 for place in range(len(tuning) + len(testing))]
    rung = Rung(STEPS, tuning, tuple(splits[: len(tuning)]))
    scores = engine.try_rates(losses, [rung] * len(losses), [rates] * len(losses))
    trials = [
        Trial(loss, found.rate * task.recipe.lr, seed, found.factor, split)
        for loss, found in zip(losses, scores, strict=True)
        for seed, split in zip(testing, splits[len(tuning) :], strict=True)
    ]
    tested = iter(engine.run_trials(trials, horizons=[STEPS], test=True))
    return [sum(task.metric.cost(next(tested)[0].test) for _ in TEST_SEEDS) / len(TEST_SEEDS) for _ in losses]


def costs_of(engine: Engine, losses: list[WeightedTree], horizons: Sequence[int], seeds: int) -> list[Any]:
    """Validation costs by loss, horizon, seed and learning rate."""
    task = engine.tasks[0]
    matched = engine.try_rates(losses, [Rung(1, TUNING_SEEDS[:1])] * len(losses), [(1.0,)] * len(losses))
    trials = [
        Trial(loss, rate * task.recipe.lr, FIRST_SEED + number, found.factor, number + 1 if task.exchangeable else 0)
        for loss, found in zip(losses, matched, strict=True)
        for number in range(seeds)
        for rate in RATES
    ]
    scores = engine.run_trials(trials, horizons=horizons)
    values = np.array([[task.metric.cost(score.validation) for score in row] for row in scores])
    values = np.where(np.isfinite(values), values, math.inf).reshape(len(losses), seeds, len(RATES), len(horizons))
    return [[[[float(f"{x:.6g}") for x in d] for d in c] for c in b] for b in values.transpose(0, 3, 1, 2)]


def measured(
    name: str, count: int, device: str, folder: str, horizons: Sequence[int], *, of: str, truths: int, seeds: int
) -> dict[str, Any]:
    """The truths and all costs of a pool."""
    task = TASKS[name]()
    losses = pool(task, count, device, folder, of=of)
    settings = EngineSettings(device=device, meta_steps=1, training_steps=PAPER_STEPS)
    engine = Engine(task, seed=0, settings=settings)
    trees, weights = [one.expression for one in losses], [one.edge_weights for one in losses]
    trained = engine.evaluate(trees, weights)
    return {
        "task": name,
        "pool": of,
        "hardware": measuring.hardware(),
        "losses": [str(one.expression) for one in losses],
        "inadmissible": [bool(reason) for reason in engine.inadmissible(trees, weights)],
        "truths": [truth_of(engine, losses, number) for number in range(truths)],
        "paper": [found.value for found in trained],
        "horizons": list(horizons),
        "costs": costs_of(engine, losses, horizons, seeds),
    }


def agreement(order: Sequence[int], truth: np.ndarray) -> tuple[float, float, float]:
    """Kendall's τ of a ranking with the truth, over all and among its top fifty, and the place of its top tenth."""
    places = truth.argsort().argsort() / len(truth)
    whole, top = (kendalltau(range(len(some)), truth[list(some)]).statistic for some in (order, order[:TOP]))
    return float(whole), float(top), float(places[list(order[: max(1, len(order) // 10)])].mean())


@dataclass(frozen=True)
class Ranked:
    """How one fitness ranks the losses of one task."""

    name: str
    whole: float
    top: float
    place: float
    steps: float


def ranked(found: dict[str, Any], ladders: Mapping[str, Ladder]) -> list[Ranked]:
    """One row per fitness."""
    truths, draws = np.array(found["truths"]), np.random.default_rng(0)
    truth = truths.mean(0)

    def row(name: str, rows: Sequence[tuple[float, float, float]], steps: float) -> Ranked:
        return Ranked(name, *map(float, np.mean(rows, axis=0)), steps)

    rows = [row("the paper's", [agreement(np.argsort(found["paper"]).tolist(), truth)], PAPER_STEPS)]
    costs = np.array(found["costs"])
    orders = [draws.permutation(costs.shape[2]) for _ in range(DRAWS)]
    for name, ladder in ladders.items():
        ranks = [ladder.ranked(costs[:, :, order], found["horizons"]) for order in orders]
        rows.append(row(name, [agreement(order, truth) for order, _ in ranks], ranks[0][1] / len(truth)))
        if any(refused := found.get("inadmissible", ())):
            last = [sorted(order, key=lambda loss: refused[loss]) for order, _ in ranks]
            rows.append(row(f"{name}, inadmissible ones last", [agreement(one, truth) for one in last], rows[-1].steps))
    if len(truths) > 1:
        others = [np.delete(truths, number, 0).mean(0) for number in range(len(truths))]
        again = [agreement(np.argsort(one).tolist(), rest) for one, rest in zip(truths, others, strict=True)]
        trials = TRUTH_RATES * len(TUNING_SEEDS) + len(TEST_SEEDS)
        rows.append(row("one truth, beside the mean of the others", again, trials * STEPS))
    return rows


def print_table(found: dict[str, Any], ladders: Mapping[str, Ladder]) -> None:
    count, losses = len(found["truths"]), len(found["losses"])
    print(f"{found['task']}, {found['pool']}: {losses} losses, mean of {count} truths, {found['hardware']}")
    for row in ranked(found, ladders):
        print(
            f"  {row.name:66s} τ {row.whole:5.2f}, top {TOP} {row.top:5.2f}; top tenth {row.place:.3f}; "
            f"{row.steps:6.0f} steps per loss"
        )


def write_table(
    every: Sequence[dict[str, Any]], ladders: Mapping[str, Ladder], commit: str, notes: Sequence[str], path: Path
) -> None:
    """Write the data of a page in docs/results; all costs must be of pools of one kind."""
    (pool,), counts = {found["pool"] for found in every}, sorted({len(found["truths"]) for found in every})
    truths, number = (str(counts[0]),) * 2 if len(counts) == 1 else (f"{counts[0]} to {counts[-1]}", "N")
    options = "" if pool == "admissible" else f" --pool {pool} --presets"
    by_task = {found["task"]: {row.name: row for row in ranked(found, ladders)} for found in every}
    titles = {
        "mnist-noise": "MNIST, 40 % wrong labels", "mnist-mlp": "MNIST, clean", "outliers": "planted outliers",
        "labels": "planted wrong labels", "diabetes": "Diabetes",
    }  # fmt: skip
    tasks = sorted(by_task, key=list(titles).index)
    steps = {row.name: row.steps for own in by_task.values() for row in own.values()}

    def cell(row: Ranked | None) -> str:
        return "not measured" if row is None else f"{row.whole:.2f}, {row.top:.2f}, {row.place:.2f}"

    rows = [(name, f"{of:,.0f}", *(cell(by_task[task].get(name)) for task in tasks)) for name, of in steps.items()]
    MeasuredTable(
        name=path.stem,
        title=f"Does the fitness rank losses as the verdict does?{TITLES[pool]}",
        about=f"Distinct losses of the first generations of a search{POOLS[pool]}. Truth: test cost after 2 000 steps, "
        f"mean of 5 seeds, at the best of nine learning rates on validation; the mean of {truths} such measurements, "
        "each with other seeds and, where rows are exchangeable, other splits. In each cell: Kendall's τ over all "
        "losses; τ among the fitness's own top fifty; mean place, in the truth, of its top tenth "
        "(0.05: perfect, 0.5: chance).",
        command=f"python benchmarks/fitness.py --task TASK{options} --truths {number} --folder DIR --out FILE",
        commit=commit,
        hardware="; ".join(dict.fromkeys(found["hardware"] for found in every)),
        n=f"{len(every[0]['losses'])} losses on each task; means over {DRAWS} draws of the seeds (the paper's: "
        "one; single truths: each once)",
        columns=("fitness", "steps per loss", *(titles[task] for task in tasks)),
        rows=tuple(rows),
        notes=tuple(notes),
    ).write(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=TASKS)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pool", choices=POOLS, default="admissible", help="the losses that are ranked")
    parser.add_argument("--truths", type=int, default=2, help="how often the truth is measured")
    parser.add_argument("--seeds", type=int, default=12, help="seeds of the trainings that fitnesses are drawn from")
    parser.add_argument("--presets", action="store_true", help="only the rungs of the presets, none of 2 000 steps")
    parser.add_argument("--folder", help="an empty folder for the record of the pool's search")
    parser.add_argument("--out", type=Path, help="where to keep the costs")
    parser.add_argument("--costs", type=Path, nargs="*", help="files of costs, to be read instead of measured")
    parser.add_argument("--table", type=Path, help="where to write the table of all files, for docs/results/data")
    parser.add_argument("--commit", default="", help="the commit that the costs were measured with")
    parser.add_argument("--note", action="append", default=[], help="a sentence for the table; may be repeated")
    options = parser.parse_args()
    ladders = {f"{name}: {ladder}": ladder for name in ("quick", "thorough") for ladder in [Ladder.of_preset(name)]}
    if not options.presets:
        ladders |= {str(ladder): ladder for ladder in OTHERS}
    if options.costs:
        every = [json.loads(path.read_text()) for path in options.costs]
    else:
        horizons = sorted({steps for ladder in ladders.values() for steps, _ in ladder.rungs})
        every = [
            measured(
                options.task, options.count, options.device, options.folder, horizons,
                of=options.pool, truths=options.truths, seeds=options.seeds,
            )
        ]  # fmt: skip
        if options.out is not None:
            options.out.write_text(json.dumps(every[0]))
    for found in every:
        print_table(found, ladders)
    if options.table is not None:
        write_table(every, ladders, options.commit, options.note, options.table)


if __name__ == "__main__":
    main()
