"""A comparison for people and programs: Markdown, a terminal's eighty columns, JSON."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from evomal.engine import Score
from evomal.verdict.comparison import Comparison, Entry, Trained
from evomal.verdict.statistics import Direction, Paired, direction, summarised
from evomal.verdict.words import difference_words, schedule_words, unit_of

_WIDTH = 80


def as_data(comparison: Comparison) -> dict[str, Any]:
    """Everything, as JSON values; null where a training diverged."""
    task = comparison.task
    return {
        "task": task.name, "record": dict(task.record), "metric": task.metric.name,
        "lower_is_better": not task.metric.higher_is_better, "steps": comparison.steps,
        "milestones": list(comparison.milestones), "seeds": list(comparison.seeds),
        "search_seeds": list(comparison.search_seeds), "trials": comparison.trials, "rates": list(comparison.rates),
        "baseline": comparison.baseline,
        "rows": [_row(entry, comparison) for entry in comparison.entries],
        "verdicts": {
            name: {"kind": found.kind, "sentence": found.sentence} for name, found in comparison.verdicts.items()
        },
    }  # fmt: skip


def markdown(comparison: Comparison) -> str:
    """A table, every seed, every divergence, and the verdicts."""
    task, metric = comparison.task, comparison.task.metric.name
    schedule = schedule_words(comparison.steps, comparison.milestones)
    head = (
        f"Test {metric} after {schedule} on {task.name}, {len(comparison.seeds)} seeds "
        f"({comparison.seeds[0]} to {comparison.seeds[-1]}), mean ± deviation; difference to {comparison.baseline} in "
        "the same variant with its 95 % bootstrap interval; p by Wilcoxon's signed-rank test unless it says sign"
    )
    if task.metric.higher_is_better:
        head += "; differences are of costs, so below 0 is better"
    if comparison.trials:
        head += f"; tuned: the best of {_rates(comparison)} on validation, for every loss alike"
    lines = [
        f"{head}.",
        "",
        "| loss | lr | test | difference | p | wins | all seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in comparison.entries:
        cells = [_escaped(cell) for cell in _cells(entry, comparison)]
        lines.append("| " + " | ".join([*cells, _escaped(_all_seeds(entry, comparison))]) + " |")
    lines += ["", *(f"- {sentence}" for sentence in _sentences(comparison))]
    return "\n".join(lines) + "\n"


def text(comparison: Comparison) -> str:
    """The same for a terminal, without the single seeds' columns."""
    rows = [("loss", "lr", "test", "difference", "p", "wins"), *(_cells(e, comparison) for e in comparison.entries)]
    lines = _aligned(rows)
    if max(map(len, lines)) > _WIDTH:  # long names get lines of their own
        values = _aligned([row[1:] for row in rows])
        lines = [line for (name, *_), rest in zip(rows, values, strict=True) for line in (name, f"  {rest}")]
    schedule = schedule_words(comparison.steps, comparison.milestones)
    about = f"test {comparison.task.metric.name} after {schedule}, {len(comparison.seeds)} seeds"
    wrapped = [
        textwrap.fill(sentence, _WIDTH, initial_indent="- ", subsequent_indent="  ")
        for sentence in _sentences(comparison)
    ]
    return "\n".join([textwrap.fill(about, _WIDTH), *lines, "", *wrapped]) + "\n"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(entry: Entry, comparison: Comparison) -> dict[str, Any]:
    difference = comparison.differences.get((entry.name, entry.variant))
    return {
        "name": entry.name, "variant": entry.variant,
        "losses": [None if loss is None else _loss(loss) for loss in entry.losses],
        "difference": None if difference is None else {
            "mean": difference.difference, "low": difference.low, "high": difference.high, "p": difference.p,
            "test": difference.test, "wins": difference.wins, "ties": difference.ties, "losses": difference.losses,
            "n": difference.n,
        },
    }  # fmt: skip


def _loss(loss: Trained) -> dict[str, Any]:
    return {
        "formula": loss.formula, "lr": loss.lr, "factor": loss.factor if math.isfinite(loss.factor) else None,
        "scores": [
            {
                "seed": score.seed, "test": _finite(score.test), "validation": _finite(score.validation),
                "outcome": score.outcome, "sentence": score.sentence,
            }
            for score in loss.scores
        ],
    }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _cells(entry: Entry, comparison: Comparison) -> tuple[str, ...]:
    trained = [loss for loss in entry.losses if loss is not None]
    name = entry.name if entry.variant == "plain" else f"{entry.name}, {entry.variant}"
    if not trained:
        return name, "", "nothing found", "", "", ""
    rates = sorted({loss.lr for loss in trained})
    shown_rates = f"{rates[0]:g}" if len(rates) == 1 else f"{rates[0]:g}–{rates[-1]:g}"
    summary = summarised([_tested(score) for loss in trained for score in loss.scores])
    if summary.mean is None:
        shown = "diverged"
    else:
        spread = "" if summary.deviation is None else f" ± {_number(summary.deviation, comparison)}"
        lost = f" ({summary.diverged} of {summary.n} diverged)" if summary.diverged else ""
        shown = f"{_number(summary.mean, comparison)}{spread}{_unit(comparison)}{lost}"
    difference = comparison.differences.get((entry.name, entry.variant))
    if difference is None:
        return name, shown_rates, shown, "", "", ""
    p = f"{difference.p:.2g}" + (" (sign)" if difference.test == "sign" else "")
    return name, shown_rates, shown, _difference(difference, comparison), p, f"{difference.wins}/{difference.n}"


def _difference(difference: Paired, comparison: Comparison) -> str:
    if difference.difference is None:
        return "—"
    shown = _signed(difference.difference, comparison)
    if difference.low is None or difference.high is None:
        return shown
    return f"{shown} ({_signed(difference.low, comparison)} to {_signed(difference.high, comparison)})"


def _all_seeds(entry: Entry, comparison: Comparison) -> str:
    rows = [
        "nothing found" if loss is None else " ".join(_value(score, comparison) for score in loss.scores)
        for loss in entry.losses
    ]
    return "; ".join(rows)


def _value(score: Score, comparison: Comparison) -> str:
    return "diverged" if score.diverged else _number(score.test, comparison)


def _sentences(comparison: Comparison) -> list[str]:
    """Verdicts first; then what diverged, and why, and what was not found."""
    sentences = [found.sentence for found in comparison.verdicts.values()]
    sentences += [note for entry in comparison.entries if (note := _at_an_end(entry, comparison)) is not None]
    if comparison.tuning is not None and direction(comparison.tuning) is Direction.WORSE:
        name, unit = comparison.baseline, unit_of(comparison.task)
        found = difference_words(f"tuned {name}", f"{name} at its own rate", comparison.tuning, unit=unit)
        sentences.append(f"{found}: on this split validation is a poor guide to the rate")
    for entry in comparison.entries:
        for number, loss in enumerate(entry.losses):
            who = f"{entry.name}, {entry.variant}" + (f", search {number}" if len(entry.losses) > 1 else "")
            if loss is None:
                sentences.append(f"{who}: the search found no loss that survived its filters")
                continue
            sentences += [f"{who}, seed {score.seed}: {score.sentence}" for score in loss.scores if score.diverged]
    return sentences


def _rates(comparison: Comparison) -> str:
    first, last = comparison.rates[0], comparison.rates[-1]
    return f"{len(comparison.rates)} learning rates" + (f" from {first:g} to {last:g}" if first < last else "")


def _at_an_end(entry: Entry, comparison: Comparison) -> str | None:
    """Where the best rate may lie beyond those that were tried."""
    if entry.variant != "tuned" or len(comparison.rates) < 2:
        return None
    ends = (comparison.rates[0], comparison.rates[-1])
    found = [loss.lr for loss in entry.losses if loss is not None]
    count = sum(lr in ends for lr in found)
    if not count:
        return None
    who = f"{count} of {len(found)} losses are" if len(found) > 1 else "the best rate is"
    return f"{entry.name}, tuned: {who} at an end of the rates tried, so another may be better"


def _tested(score: Score) -> float:
    return math.inf if score.diverged else score.test


def _share(comparison: Comparison) -> bool:
    return comparison.task.metric.percent


def _unit(comparison: Comparison) -> str:
    return " %" if _share(comparison) else ""


def _number(value: float, comparison: Comparison) -> str:
    return f"{100 * value:.2f}" if _share(comparison) else _significant(value)


def _signed(value: float, comparison: Comparison) -> str:
    shown = _number(abs(value), comparison)
    return f"−{shown}" if value < 0 else f"+{shown}"


def _significant(value: float) -> str:
    return f"{value:.3f}" if 1e-2 <= abs(value) < 1e3 or value == 0 else f"{value:.2g}"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
