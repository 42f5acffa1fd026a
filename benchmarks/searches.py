"""What searches are worth: each search's loss on the test split, beside the tuned baseline and the best tuned rival.

For every task and search seed: a search, then 5 fresh seeds of its recommended and its best loss, of the baseline and
of every rival, each at the learning rate that was best on validation with 2 other seeds. All searches are reported.
Every line of the output is a JSON object; `--summarise` reads such lines and prints one row per task.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import measuring
import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[1] / "campaigns"))
from planted_tasks import noisy_mnist, planted_labels, planted_outliers

import evomal
from evomal.engine import Engine, EngineSettings, Trial
from evomal.losses.catalogue import specified_loss
from evomal.methods.baseline import strong_rivals
from evomal.methods.rungs import spaced_rates
from evomal.tasks.task import Task

TUNING_SEEDS, TEST_SEEDS, STEPS = (900_001, 900_002), (900_011, 900_012, 900_013, 900_014, 900_015), 2000


TASKS: dict[str, Callable[[], Task]] = {
    "outliers": planted_outliers,
    "labels": planted_labels,
    "more-labels": lambda: planted_labels(rows=12_000),
    "mnist-noise": noisy_mnist,
    "mnist-imbalance": lambda: evomal.load_task(
        "mnist", "mlp:hidden=128", metric="balanced_error", hardships=evomal.Hardships(imbalance=0.01)
    ),
    "mnist-mlp": lambda: evomal.load_task("mnist", "mlp:hidden=128"),
    "diabetes": lambda: evomal.load_task("diabetes"),
    "california": lambda: evomal.load_task("california"),
    "california-outliers": lambda: evomal.load_task("california", hardships=evomal.Hardships(outliers=0.3)),
    "lenet5": lambda: evomal.load_task("mnist", "lenet5"),
}


def tested(task: Task, losses: dict[str, nn.Module], device: str) -> dict[str, dict[str, object]]:
    """The test costs of each loss, at its learning rate that is best on validation out of nine."""
    settings = EngineSettings(device=device, meta_steps=1, training_steps=STEPS)
    engine = Engine(task, seed=0, settings=settings)
    rates = spaced_rates(9)

    def cost(value: float) -> float:
        return task.metric.cost(value)

    tuning = [
        Trial(loss, rate * task.recipe.lr, seed) for loss in losses.values() for rate in rates for seed in TUNING_SEEDS
    ]
    scores = iter(engine.run_trials(tuning))
    best = {}
    for name in losses:
        means = {rate: sum(cost(next(scores)[0].validation) for _ in TUNING_SEEDS) for rate in rates}
        best[name] = min(means, key=lambda rate: means[rate])
    finals = [Trial(loss, best[name] * task.recipe.lr, seed) for name, loss in losses.items() for seed in TEST_SEEDS]
    scores = iter(engine.run_trials(finals, test=True))
    return {name: {"rate": best[name], "test": [cost(next(scores)[0].test) for _ in TEST_SEEDS]} for name in losses}


def settings_of(preset: str, device: str, changes: Mapping[str, str]) -> evomal.SearchSettings:
    """The settings of a preset with changes as texts."""
    texts = (f"{key}={value}" for key, value in changes.items())
    return evomal.SearchSettings.preset(preset, device=device).with_texts(texts)


def searched(name: str, seed: int, preset: str, device: str, changes: Mapping[str, str]) -> dict[str, object]:
    """One search, and what it found on the test split."""
    task = TASKS[name]()
    settings = settings_of(preset, device, changes)
    begin = time.perf_counter()
    result = evomal.search(task, settings=settings, seed=seed)
    seconds = time.perf_counter() - begin
    losses: dict[str, nn.Module] = {}
    if result.best is not None:
        losses["best"] = result.best.loss()
    final, advised = result.final, result.recommended
    found = {
        "task": name, "seed": seed, "preset": preset, "changes": dict(changes), "seconds": round(seconds, 1),
        "generations": len(result.history),
        "formula": None if result.best is None else result.best.formula(), "counts": result.counts,
        "recommended": None if advised is None else "best" if advised.learned else advised.name,
        "leads": bool(final and final.leads), "rival": final and final.best_rival[0],
        "best_lr": result.best and result.best.lr,
        "validation": final and {"lead": final.lead, "winner": final.winner[1].mean, "rival": final.best_rival[1].mean},
        "headroom": result.headroom and {rival: result.headroom.last(rival).mean for rival in result.headroom.losses},
    }  # fmt: skip
    begin = time.perf_counter()
    found["test"] = tested(task, losses, device) if losses else {}
    return {**found, "test_seconds": round(time.perf_counter() - begin, 1)}


def rivals(name: str, device: str) -> dict[str, object]:
    """The baseline and the rivals on the test split."""
    task = TASKS[name]()
    losses = {rival: specified_loss(rival, kind=task.kind) for rival in strong_rivals(task)}
    return {"task": name, "rivals": tested(task, losses, device), "hardware": measuring.hardware()}


def learned_cost(line: Mapping[str, Any], rivals: Mapping[str, float]) -> float:
    """The mean test cost of the best loss of a search; the baseline's if it found none."""
    own = line["test"].get("best")
    return next(iter(rivals.values())) if own is None else statistics.mean(own["test"])


def recommended_cost(line: Mapping[str, Any], rivals: Mapping[str, float]) -> float:
    """The mean test cost of the loss that a search recommends: without a final, its best loss."""
    advised = line["recommended"]
    return learned_cost(line, rivals) if advised in (None, "best") else rivals[advised]


def summarise(lines: list[dict[str, object]]) -> None:
    """One row per task and setting: differences to the tuned baseline and to the best tuned rival, all searches."""
    known = {str(line["task"]): line["rivals"] for line in lines if "rivals" in line}
    groups: dict[tuple[str, str, str], list[dict[str, object]]] = {}
    for line in lines:
        if "rivals" not in line:
            key = str(line["task"]), str(line["preset"]), json.dumps(line["changes"])
            groups.setdefault(key, []).append(line)
    for (task, preset, changes), found in groups.items():
        means = {rival: statistics.mean(row["test"]) for rival, row in known[task].items()}  # type: ignore[attr-defined]
        baseline, rival = next(iter(means)), min(means, key=lambda name: means[name])
        own = [learned_cost(line, means) for line in found]
        used = [recommended_cost(line, means) for line in found]
        seconds = sorted(float(str(line["seconds"])) for line in found)
        learned = sum(line["recommended"] == "best" for line in found)
        print(
            f"{task} {preset} {changes}: n = {len(found)}, {statistics.median(seconds):.0f} s "
            f"({seconds[0]:.0f} to {seconds[-1]:.0f}); {baseline} {means[baseline]:.4g}, {rival} {means[rival]:.4g}\n"
            f"  learned loss: median {statistics.median(own):.4g}, worst {max(own):.4g}, "
            f"{sum(value < means[rival] for value in own)} of {len(own)} beat {rival}; all {_short(own)}\n"
            f"  recommended: median {statistics.median(used):.4g}, worst {max(used):.4g}, {learned} of {len(used)} are "
            f"learned; all {_short(used)}"
        )


def _short(values: list[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in sorted(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=TASKS)
    parser.add_argument("--seeds", default="0", help="search seeds, comma-separated")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--set", action="append", default=[], help="a setting as key=value")
    parser.add_argument("--rivals", action="store_true", help="measure the rivals instead of searching")
    parser.add_argument("--summarise", type=Path, nargs="*", help="files of lines")
    options = parser.parse_args()
    if options.summarise is not None:
        summarise([json.loads(line) for path in options.summarise for line in path.read_text().splitlines()])
        return
    if options.rivals:
        print(json.dumps(rivals(options.task, options.device)), flush=True)
        return
    changes = dict(text.split("=", 1) for text in options.set)
    for seed in map(int, options.seeds.split(",")):
        print(json.dumps(searched(options.task, seed, options.preset, options.device, changes)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
