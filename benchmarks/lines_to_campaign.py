"""Add lines of `searches.py` to a result of `docs/results/data`.

    python benchmarks/lines_to_campaign.py LINES… --commit 63583a7 --hardware "one core, torch 2.13" --result FILE

A search takes the place of one with the same task, preset and seed; known losses that were measured again take the
place of all known losses of their task. A line whose final was lost on every loss, as by a device that was out of
memory, is left out and named.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from evomal.campaigns.record import (
    LEARNED,
    CampaignResult,
    ComparedRow,
    ComparisonCell,
    MeasuredTask,
    Provenance,
    SearchCell,
    TrainedLoss,
    read_result,
)

Line = dict[str, Any]


def with_lines(result: CampaignResult, lines: list[Line], *, commit: str, hardware: str) -> CampaignResult:
    """The result with the searches and the known losses of these lines."""
    tasks = []
    for task in result.tasks:
        own = [line for line in lines if line["task"] == task.name]
        tasks.append(_with_lines(task, own, commit, hardware) if own else task)
    return result.model_copy(update={"tasks": tuple(tasks)})


def _with_lines(task: MeasuredTask, lines: list[Line], commit: str, hardware: str) -> MeasuredTask:
    comparison = task.comparison
    assert comparison is not None
    lr = comparison.rates[len(comparison.rates) // 2]  # the task's own is in the middle
    known = [row for row in comparison.rows if row.name in task.known_losses]
    made = comparison.made
    searches: dict[tuple[str, int], tuple[SearchCell, TrainedLoss | None]] = {}
    for contestant in task.contestants:
        row = task.row(contestant, "tuned")
        assert row is not None
        for cell, loss in zip(task.searches_of(contestant), row.losses, strict=True):
            searches[cell.preset, cell.seed] = cell, loss
    for line in lines:
        if "rivals" in line:
            known = [
                ComparedRow(name=name, variant="tuned", losses=(_trained(found, lr, name),))
                for name, found in line["rivals"].items()
            ]
            made = Provenance(commit=commit, hardware=line["hardware"], seconds=None)
            continue
        cell = _search(line, Provenance(commit=commit, hardware=hardware, seconds=line["seconds"]))
        found = line["test"].get("best")
        loss = None if found is None else _trained(found, lr, line["formula"])
        searches[cell.preset, cell.seed] = cell, loss
    in_order = [searches[key] for key in sorted(searches)]
    learned: dict[str, list[TrainedLoss | None]] = {}
    for cell, loss in in_order:
        learned.setdefault(cell.contestant, []).append(loss)
    rows = [*known, *(ComparedRow(name=name, variant="tuned", losses=tuple(own)) for name, own in learned.items())]
    changed: ComparisonCell = comparison.model_copy(update={"rows": tuple(rows), "made": made})
    return task.model_copy(update={"searches": tuple(cell for cell, _ in in_order), "comparison": changed})


def _search(line: Line, made: Provenance) -> SearchCell:
    validation, recommended = line.get("validation") or {}, line.get("recommended")
    lead = validation.get("lead")
    return SearchCell(
        method="evomal", preset=_preset(line), seed=line["seed"], settings=line["changes"], made=made,
        generations=line["generations"], counts=line["counts"], formula=line["formula"], lr=_finite(line["best_lr"]),
        recommended=LEARNED if recommended == "best" else recommended, rival=line.get("rival"),
        lead=None if lead is None or None in map(_finite, lead) else tuple(lead),
        headroom={name: _finite(cost) for name, cost in (line.get("headroom") or {}).items()},
    )  # fmt: skip


def _preset(line: Line) -> str:
    """The preset, with the search space where that was chosen, and whether known losses were given to start with."""
    space, seeds = (line["changes"].get(name) for name in ("space", "seed_with"))
    return ", ".join([line["preset"], *([f"{space} space"] if space else []), *(["seeded"] if seeds else [])])


def _trained(found: Line, lr: float, formula: str) -> TrainedLoss:
    return TrainedLoss(formula=formula, lr=found["rate"] * lr, test=tuple(_finite(value) for value in found["test"]))


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", type=Path, nargs="+")
    parser.add_argument("--commit", required=True)
    parser.add_argument("--hardware", required=True, help="what the searches ran on")
    parser.add_argument("--result", type=Path, required=True)
    options = parser.parse_args()
    texts = [line for path in options.lines for line in path.read_text().splitlines() if line.startswith("{")]
    lines = []
    for line in map(json.loads, texts):
        if _finite((line.get("validation") or {"rival": 0.0})["rival"]) is None:
            print(f"left out, its final was lost on every loss: {line['task']}, {line['preset']}, seed {line['seed']}")
        else:
            lines.append(line)
    result = read_result(options.result)
    with_lines(result, lines, commit=options.commit, hardware=options.hardware).write(options.result)


if __name__ == "__main__":
    main()
