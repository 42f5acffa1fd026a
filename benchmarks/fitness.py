"""Whether a fitness ranks losses as the verdict would: rank correlations with the truth, for a pool of losses.

The pool are distinct losses of the first generations of a short search. The truth of a loss is its test cost after 2
000 steps, the mean of 5 fresh seeds, at the best of nine learning rates on validation (2 other seeds). A fitness is the
paper's (one training of 500 steps at the task's learning rate) or that of a preset's rungs. Kendall's τ is given over
the whole pool and among the fitness's own top fifty, with the training steps that the fitness took.
"""

import argparse
import json

import measuring
import torch
from scipy.stats import kendalltau
from searches import STEPS, TASKS, TEST_SEEDS, TUNING_SEEDS

import evomal
from evomal.engine import Engine, EngineSettings, Rung, Trial
from evomal.losses.loss import WeightedTree
from evomal.methods.candidates import Candidate, State
from evomal.methods.rungs import Ladder, spaced_rates
from evomal.runs import RunStore
from evomal.tasks.task import Task

TOP = 50


def pool(task: Task, count: int, device: str, folder: str) -> list[WeightedTree]:
    """Distinct losses of the first generations of a search, trained for a few steps."""
    settings = evomal.SearchSettings.preset(
        "quick", population=max(25, count // 3), generations=6, first_trees=6000, training_steps=20, tried_rates=1,
        rungs=(1.0,), rung_seeds=(1,), finalists=0, device=device,
    )  # fmt: skip
    evomal.search(task, settings=settings, seed=77, folder=folder)
    with RunStore.read(folder) as store:
        trained = [one for one in store.candidates() if one.state is State.EVALUATED and not one.is_carried]
    distinct = {one.fingerprint or one.genome: one for one in reversed(trained)}
    chosen = sorted(distinct.values(), key=lambda one: (one.generation, one.index))[:count]
    return [WeightedTree(one.tree, list(one.weights)) for one in chosen]


def truths(engine: Engine, losses: list[WeightedTree], rates: tuple[float, ...]) -> list[float]:
    """The test cost of each loss at its learning rate that is best on validation."""
    task = engine.tasks[0]
    rung = Rung(STEPS, TUNING_SEEDS)
    scores = engine.try_rates(losses, [rung] * len(losses), [rates] * len(losses))
    trials = [
        Trial(loss, found.rate * task.recipe.lr, seed, found.factor)
        for loss, found in zip(losses, scores, strict=True)
        for seed in TEST_SEEDS
    ]
    tested = iter(engine.run_trials(trials, horizons=[STEPS], test=True))
    return [sum(task.metric.cost(next(tested)[0].test) for _ in TEST_SEEDS) / len(TEST_SEEDS) for _ in losses]


def on_rungs(engine: Engine, losses: list[WeightedTree], preset: str) -> tuple[list[tuple[float, float]], int]:
    """The standing of each loss by a preset's rungs, and the steps that it took."""
    settings, task = evomal.SearchSettings.preset(preset), engine.tasks[0]
    ladder = Ladder.of(settings, seed=1, is_exchangeable=task.exchangeable)
    assert ladder is not None
    candidates = [
        Candidate(genome=str(loss.expression), origin="given", index=index, weights=tuple(loss.edge_weights))
        for index, loss in enumerate(losses)
    ]
    going = list(candidates)
    for number, rung in enumerate(ladder.rungs):
        going = ladder.chosen(going) if number else going
        tried = [losses[one.index] for one in going]
        rates = [ladder.rates_of(number, one) for one in going]
        scores = engine.try_rates(tried, [rung] * len(tried), rates)
        going = [one.climbed(found) for one, found in zip(going, scores, strict=True)]
        for one in going:
            candidates[one.index] = one
    return [one.standing for one in candidates], ladder.steps(len(losses))


def agreement(fitness: list[object], truth: list[float]) -> tuple[float, float]:
    """Kendall's τ over all, and among the fitness's own top fifty."""
    order = sorted(range(len(truth)), key=lambda index: fitness[index])  # type: ignore[arg-type,return-value]
    places = [0] * len(order)
    for place, index in enumerate(order):
        places[index] = place
    top = order[:TOP]
    whole = kendalltau(places, truth).statistic
    return round(float(whole), 3), round(float(kendalltau(range(len(top)), [truth[i] for i in top]).statistic), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--folder", required=True, help="an empty folder for the record of the pool's search")
    options = parser.parse_args()
    task = TASKS[options.task]()
    losses = pool(task, options.count, options.device, options.folder)
    engine = Engine(task, seed=0, settings=EngineSettings(device=options.device, meta_steps=1, training_steps=500))
    truth = truths(engine, losses, spaced_rates(9))
    trained = engine.evaluate([one.expression for one in losses], [one.edge_weights for one in losses])
    paper = [found.value for found in trained]
    rows: dict[str, object] = {"paper": (*agreement(list(paper), truth), 500 * len(losses))}
    for preset in ("quick", "thorough"):
        standings, steps = on_rungs(engine, losses, preset)
        rows[preset] = (*agreement(list(standings), truth), steps)
    print(json.dumps({"task": options.task, "losses": len(losses), "hardware": measuring.hardware(), "tau": rows}))


if __name__ == "__main__":
    main()
