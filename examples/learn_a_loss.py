"""Learn a loss for the Diabetes data, and see whether it was worth it.

A `quick` search with a small network, then the learned loss against squared error: trained anew from seeds the search
has not seen, and judged once on the test split. Whatever comes out is printed, "no gain" included, and beside it what
predicting the mean would give: 266 rows are soon learned by heart. Run by `make demo`.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import evomal
from evomal.runs import Generation

SEARCH_SEED, SEEDS = 0, range(100, 105)


def main() -> None:
    begin = time.perf_counter()
    task = evomal.load_task("diabetes", model="mlp:hidden=64")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="evomal-")) / "diabetes"
    print("searching: 10 generations of 25 candidates, Diabetes, two hidden layers of 64")
    result = evomal.search(task, seed=SEARCH_SEED, folder=folder, callback=told)
    if result.best is None:
        print(f"nothing survived: {result.counts}; keep squared error")
        return
    print(f"\nlearned    {result.best.formula()}")
    print(f"           {result.best.expression} ({result.best.expression.size} nodes)")
    print(f"fitness    {result.best.fitness:.4f} validation MSE after 250 steps, search seed {SEARCH_SEED}")
    compare(task, result.best.loss())
    print(f"\nfiles      {folder}: run.sqlite, best.json")
    print(f"time       {time.perf_counter() - begin:.0f} s in all, {result.seconds:.0f} s of them the search")


def told(generation: Generation) -> None:
    best = "nothing yet" if generation.best is None else f"{generation.best.fitness:.4f}"
    counts = ", ".join(f"{count} {state}" for state, count in generation.counts.items())
    print(f"  generation {generation.number + 1:2}: best {best} ({counts})")


def compare(task: evomal.Task, learned: evomal.ExpressionLoss) -> None:
    print(f"\ntest MSE after 2000 steps, {len(SEEDS)} seeds that the search has not seen")
    scores = {
        name: [evomal.train(task, loss, seed=seed, steps=2000) for seed in SEEDS]
        for name, loss in (("squared error", "mse"), ("learned loss", learned))
    }
    for name, found in scores.items():
        values = [score.test for score in found if not score.diverged]
        listed = " ".join("diverged" if score.diverged else f"{score.test:.4f}" for score in found)
        summary = f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}" if len(values) > 1 else "–"
        print(f"  {name:14} {summary:17} ({listed})")
    # Targets are standardised with the training split's mean, so the mean's prediction is 0.
    print(f"  {'the mean':14} {task.test.targets.square().mean().item():.4f}")
    print(f"  {verdict(*scores.values())}")


def verdict(baseline: list[evomal.Score], learned: list[evomal.Score]) -> str:
    """A paired comparison in words: the mean difference against its standard error."""
    if any(score.diverged for score in learned):
        return "the learned loss diverged at least once: keep squared error"
    gains = [one.test - other.test for one, other in zip(baseline, learned, strict=True)]
    mean, error = statistics.mean(gains), statistics.stdev(gains) / len(gains) ** 0.5
    wins = sum(gain > 0 for gain in gains)
    if mean > 2 * error:
        return f"the learned loss is better by {mean:.4f} ± {error:.4f} ({wins} of {len(gains)} seeds)"
    if mean < -2 * error:
        return f"the learned loss is worse by {-mean:.4f} ± {error:.4f}: keep squared error"
    return f"no gain ({mean:+.4f} ± {error:.4f}, {wins} of {len(gains)} seeds): keep squared error"


if __name__ == "__main__":
    main()
