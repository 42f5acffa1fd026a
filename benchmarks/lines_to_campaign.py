"""Lines of `searches.py` as the result of a campaign, for `docs/results/data`.

    python benchmarks/lines_to_campaign.py LINES… --rivals LINES --commit 956772b --out docs/results/data/searches.json

A line may say its own `commit` and `hardware`. Rivals that were not measured with the searches keep the hardware of
their own lines. A line whose final was lost on every loss, as by a device that was out of memory, is left out and
counted.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from searches import STEPS, TASKS, TEST_SEEDS

from evomal.campaigns import read_campaign
from evomal.campaigns.record import (
    LEARNED,
    CampaignResult,
    ComparedRow,
    ComparisonCell,
    MeasuredTask,
    Provenance,
    SearchCell,
    TrainedLoss,
)
from evomal.methods.rungs import spaced_rates

_RATES = 9
_SPACE = "space"


def lines_of(paths: list[Path]) -> list[dict[str, Any]]:
    """All lines, each once."""
    texts = [line for path in paths for line in path.read_text().splitlines() if line.startswith("{")]
    return [json.loads(line) for line in dict.fromkeys(texts)]


def preset_of(line: dict[str, Any]) -> str:
    """The preset, with the search space where that is another one."""
    space = line["changes"].get(_SPACE)
    return f"{line['preset']}, {space} space" if space else str(line["preset"])


def finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def search_of(line: dict[str, Any], commit: str, hardware: dict[str, str]) -> SearchCell:
    validation, recommended = line.get("validation") or {}, line.get("recommended")
    lead = validation.get("lead")
    return SearchCell(
        method="evomal", preset=preset_of(line), seed=line["seed"], settings=line["changes"],
        made=Provenance(
            commit=line.get("commit", commit), hardware=line.get("hardware", hardware[line["preset"]]),
            seconds=line["seconds"],
        ),
        counts=line.get("counts", {}), formula=line.get("formula"), lr=finite(line.get("best_lr")),
        recommended=LEARNED if recommended == "best" else recommended, rival=line.get("rival"),
        lead=None if lead is None or None in map(finite, lead) else tuple(lead),
        headroom={name: finite(cost) for name, cost in (line.get("headroom") or {}).items()},
    )  # fmt: skip


def trained(found: dict[str, Any], lr: float, formula: str) -> TrainedLoss:
    tests = tuple(finite(value) for value in found["test"])
    return TrainedLoss(formula=formula, lr=found["rate"] * lr, test=tests)


def task_of(
    name: str, lines: list[dict[str, Any]], known: dict[str, Any], commit: str, hardware: dict[str, str], title: str
) -> MeasuredTask:
    task = TASKS[name]()
    baseline, lr = next(iter(known["rivals"])), task.recipe.lr
    rows = [
        ComparedRow(name=rival, variant="tuned", losses=(trained(found, lr, rival),))
        for rival, found in known["rivals"].items()
    ]
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in sorted(lines, key=lambda line: (preset_of(line), line["seed"])):
        groups.setdefault(f"evomal ({preset_of(line)})", []).append(line)
    for contestant, some in groups.items():
        losses = tuple(
            trained(line["test"]["best"], lr, line["formula"]) if "best" in line["test"] else None for line in some
        )
        rows.append(ComparedRow(name=contestant, variant="tuned", losses=losses))
    seconds = sum(float(line.get("test_seconds", 0)) for line in lines)
    comparison = ComparisonCell(
        made=Provenance(commit=commit, hardware=known["hardware"], seconds=seconds), steps=STEPS, seeds=TEST_SEEDS,
        tune_lr=_RATES, rates=tuple(rate * lr for rate in spaced_rates(_RATES)), baseline=baseline, rows=tuple(rows),
    )  # fmt: skip
    searches = [search_of(line, commit, hardware) for some in groups.values() for line in some]
    return MeasuredTask(
        name=name, title=title, task=task.name, model=str(task.record.get("model", "")), metric=task.metric.name,
        rows={"training": len(task.train), "validation": len(task.validation), "test": len(task.test)},
        searches=tuple(searches), comparison=comparison,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", type=Path, nargs="+")
    parser.add_argument("--rivals", type=Path, nargs="+", required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--thorough", required=True, help="the hardware of searches with the preset thorough")
    parser.add_argument("--quick", required=True, help="the hardware of searches with the preset quick")
    parser.add_argument("--note", default="")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    known = {line["task"]: line for line in lines_of(options.rivals) if "rivals" in line}
    found = [line for line in lines_of(options.lines) if "rivals" not in line]
    kept = [line for line in found if finite((line.get("validation") or {"rival": 0.0})["rival"]) is not None]
    lost = f" Left out: {len(found) - len(kept)} whose final was lost on every loss." if len(kept) < len(found) else ""
    declared = read_campaign(Path(__file__).parents[1] / "campaigns" / "searches.toml")
    hardware = {"thorough": options.thorough, "quick": options.quick}
    tasks = [
        task_of(
            task.name, [line for line in kept if line["task"] == task.name], known[task.name], options.commit,
            hardware, task.title or task.name,
        )
        for task in declared.tasks
        if task.name in known
    ]  # fmt: skip
    result = CampaignResult(
        name=options.out.stem, title=declared.title, about=declared.about, note=f"{options.note}{lost}".strip(),
        command="python benchmarks/searches.py --task TASK --preset PRESET --seeds SEEDS", tasks=tuple(tasks),
    )  # fmt: skip
    result.write(options.out)


if __name__ == "__main__":
    main()
