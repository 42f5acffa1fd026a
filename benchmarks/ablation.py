"""What each part of the search is worth: searches without it, in the same time as the whole search.

For every variant and search seed one search, which ends after `--time` seconds with its final, and what it found on the
test split (see `searches.py`, whose lines these are). The time of the final is measured before, in a search of two
generations; the number of generations follows from what is left. `--list` prints the settings of every variant,
`--summarise` reads lines, with those of `searches.py --rivals`, and prints a table.

    python benchmarks/ablation.py --task outliers --time 60 --seeds 0,1,2 > lines.json
    python benchmarks/searches.py --task outliers --rivals >> lines.json
    python benchmarks/ablation.py --summarise lines.json
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import searches
import torch

import evomal
from evomal.campaigns.tables import MeasuredTable
from evomal.tasks.task import FEWEST_ROWS, Task
from evomal.verdict.statistics import paired

FULL = "full"
VARIANTS: Mapping[str, Mapping[str, str]] = {
    FULL: {},
    "without rates": {"tried_rates": "1"},
    "without rungs": {"rungs": "1.0"},
    "without resplits": {"resplit": "false"},
    "without admissibility": {"filters": "symbolic,dead,rejection,gradient"},
    "without diversity": {
        "islands": "1", "first_trees": "none", "surplus": "1", "filters": "symbolic,admissible,dead,rejection",
    },
    "without finals": {"finalists": "0"},
    "without final rows": {"final_share": "0"},
    "with weights": {"tuned_rung": "2"},
}  # fmt: skip
"""What each variant changes of `quick` or `thorough`. Both leave the weights of losses alone, so it is switched on."""
_MOST_GENERATIONS = 10**6
_LIMITS = ("generations", "max_time")  # which follow from --time
_CALIBRATION_SEED = 999
_OF_PROPOSALS = {key for name in ("without admissibility", "without diversity") for key in VARIANTS[name]}


def matters(variant: str, task: Task) -> bool:
    """Whether a search of this task is another one in the variant."""
    if variant == "without resplits":
        return task.exchangeable
    if variant == "without final rows":  # where splits are drawn anew, finals have fresh ones instead
        return len(task.validation) >= FEWEST_ROWS and not task.exchangeable
    return True


def generation_time(task: Task, settings: evomal.SearchSettings, seconds: float) -> float:
    """How many seconds the generations of a search may take so that the whole search takes `seconds` on average."""
    ends = []
    begin = time.perf_counter()
    evomal.search(
        task, settings=settings.with_changes(generations=2), seed=_CALIBRATION_SEED,
        callback=lambda _: ends.append(time.perf_counter()),
    )  # fmt: skip
    final, generation = time.perf_counter() - ends[-1], ends[1] - ends[0]
    left = seconds - final - generation / 2  # the last generation begins before the time is used up
    print(
        f"  two generations and a final take {time.perf_counter() - begin:.0f} s, the final {final:.0f}",
        file=sys.stderr,
    )
    if left <= ends[0] - begin:
        least = seconds - left + ends[0] - begin
        raise SystemExit(f"--time must be more than {least:.0f} for a generation and the final but got {seconds:g}")
    return left


def measured(
    name: str,
    variants: Iterable[str],
    seeds: Iterable[int],
    *,
    preset: str,
    device: str,
    seconds: float,
    changes: Mapping[str, str],
) -> Iterable[dict[str, Any]]:
    """The searches of these variants, which take turns: a machine that gets slower does so for all of them."""
    changes_of = {}
    for variant in variants:
        own = VARIANTS[variant]
        # Where few proposals are trained, two generations may have fewer finalists than the search will have.
        of_trainings = {key: value for key, value in own.items() if key not in _OF_PROPOSALS}
        settings = searches.settings_of(preset, device, {**changes, **of_trainings})
        left = generation_time(searches.TASKS[name](), settings, seconds)
        limits = dict(zip(_LIMITS, (str(_MOST_GENERATIONS), f"{left:.3f}"), strict=True))
        changes_of[variant] = {**changes, **own, **limits}
    for seed in seeds:
        for variant, own in changes_of.items():
            yield {"variant": variant, "time": seconds, **searches.searched(name, seed, preset, device, own)}


_COLUMNS = (
    "task", "variant", "n", "seconds", "generations", "learned: median, worst", "ratio to full, 95 %",
    "recommended: median, worst", "ratio to full, 95 %",
)  # fmt: skip


def summarise(lines: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The rows of a table: the test costs of each variant, and their ratio to those of the whole search with the same
    seeds."""
    known: dict[str, dict[str, float]] = {}
    groups: dict[tuple[str, str, float], dict[str, dict[int, Mapping[str, Any]]]] = {}
    for line in lines:
        if "rivals" in line:
            known[line["task"]] = {name: statistics.mean(row["test"]) for name, row in line["rivals"].items()}
        else:
            by_variant = groups.setdefault((line["task"], line["preset"], line["time"]), {})
            by_variant.setdefault(line["variant"], {})[line["seed"]] = line
    rows = []
    if missing := sorted({task for task, *_ in groups} - known.keys()):
        raise SystemExit(f"the lines of `searches.py --rivals` are missing for {', '.join(missing)}")
    for (task, preset, seconds), by_variant in groups.items():
        for variant, found in sorted(by_variant.items(), key=lambda item: list(VARIANTS).index(item[0])):
            taken = statistics.median(line["seconds"] for line in found.values())
            cells = [f"{task}, {preset}, {seconds:g} s", variant, str(len(found)), f"{taken:.0f}"]
            cells.append(f"{statistics.median(line['generations'] for line in found.values()):g}")
            for cost in (searches.learned_cost, searches.recommended_cost):
                costs = {seed: cost(line, known[task]) for seed, line in found.items()}
                full = {seed: cost(line, known[task]) for seed, line in by_variant.get(FULL, {}).items()}
                cells.append(f"{statistics.median(costs.values()):.4g}, {max(costs.values()):.4g}")
                cells.append("" if variant == FULL else _ratio(costs, full))
            rows.append(tuple(cells))
    return rows


def table_of(lines: list[dict[str, Any]], options: argparse.Namespace) -> MeasuredTable:
    """The table as data of `docs/results/data`."""
    searches_of = [line for line in lines if "rivals" not in line]
    counts = Counter((line["task"], line["preset"], line["time"], line["variant"]) for line in searches_of)
    runs: dict[tuple[str, str, float], set[tuple[str, str]]] = {}
    for line in searches_of:
        own = {(name, value) for name, value in line["changes"].items() if name not in _LIMITS}
        key = line["task"], line["preset"], line["time"]
        runs[key] = runs.get(key, own) & own  # what is the same in all variants was given by --set
    return MeasuredTable(
        name=options.table.stem, title="What each part of the search is worth",
        about="Searches without one of its parts at a time, in the same time as the whole search, its final included. "
        "Test cost of the learned and of the recommended loss, mean of 5 fresh seeds, each loss at its best of nine "
        "learning rates. Ratios are geometric means over searches with the same seeds, with their 95 % intervals; more "
        "than 1 is worse than the whole search.",
        command="; ".join(
            " ".join((
                f"python benchmarks/ablation.py --task {task} --preset {preset} --time {seconds:g} --seeds SEEDS",
                *(f"--set {name}={value}" for name, value in sorted(common)),
            ))
            for (task, preset, seconds), common in sorted(runs.items())
        ),
        commit=options.commit, hardware=options.hardware,
        n=f"{min(counts.values())} searches of each variant and task, seeds from 0", columns=_COLUMNS,
        rows=tuple(summarise(lines)), notes=tuple(options.note),
    )  # fmt: skip


def _ratio(costs: Mapping[int, float], full: Mapping[int, float]) -> str:
    """The geometric mean of the ratios of paired costs, with its interval: costs differ by orders of magnitude."""
    seeds = [seed for seed in costs if seed in full]
    if not seeds:
        return "no pairs"
    found = paired(*([math.log(own[seed]) for seed in seeds] for own in (costs, full)))
    if found.difference is None:
        return "diverged"
    lost = f", {found.diverged} diverged" if found.diverged else ""
    ends = (
        "" if found.low is None or found.high is None else f" ({math.exp(found.low):.3f} to {math.exp(found.high):.3f})"
    )
    return f"{math.exp(found.difference):.3f}{ends}{lost}, n = {found.n}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=searches.TASKS)
    parser.add_argument("--variant", action="append", choices=VARIANTS, help="default: all that matter on the task")
    parser.add_argument("--seeds", default="0", help="search seeds, comma-separated")
    parser.add_argument("--preset", default="quick", choices=["quick", "thorough"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--time", type=float, default=60.0, help="seconds of a search, its final included")
    parser.add_argument("--set", action="append", default=[], help="a setting of all variants as key=value")
    parser.add_argument("--list", action="store_true", help="print the settings of every variant")
    parser.add_argument("--summarise", type=Path, nargs="*", help="files of lines")
    parser.add_argument("--table", type=Path, help="with --summarise: write docs/results/data/NAME.json instead")
    parser.add_argument("--commit", default="unknown", help="of the code that was measured")
    parser.add_argument("--hardware", default="unknown")
    parser.add_argument("--note", action="append", default=[], help="a sentence below the table")
    options = parser.parse_args()
    if options.list:
        for variant, changes in VARIANTS.items():
            print(f"{variant}: {' '.join(f'--set {key}={value}' for key, value in changes.items())}")
        return
    if options.summarise is not None:
        lines = [json.loads(line) for path in options.summarise for line in path.read_text().splitlines()]
        if options.table is not None:
            table_of(lines, options).write(options.table)
        else:
            for cells in (_COLUMNS, ["---"] * len(_COLUMNS), *summarise(lines)):
                print(f"| {' | '.join(cells)} |")
        return
    if options.task is None:
        parser.error("--task is missing")
    task = searches.TASKS[options.task]()
    changes = dict(text.split("=", 1) for text in options.set)
    chosen = options.variant or list(VARIANTS)
    for variant in (unchanged := [variant for variant in chosen if not matters(variant, task)]):
        print(f"{variant}: changes nothing on {options.task}", file=sys.stderr)
    for line in measured(
        options.task, [variant for variant in chosen if variant not in unchanged], map(int, options.seeds.split(",")),
        preset=options.preset, device=options.device, seconds=options.time, changes=changes,
    ):  # fmt: skip
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
