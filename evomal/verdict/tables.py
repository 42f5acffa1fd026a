"""The tables of a comparison: Markdown, text for a terminal of eighty columns, and one row per training."""

import math
import re
import statistics
import textwrap
from collections.abc import Sequence
from typing import Any

from evomal.engine.left_out import error_of_rows, half_width
from evomal.runs.leads import Scores
from evomal.tasks.metric_display import difference_unit, metric_number, metric_text
from evomal.text import WIDTH, escape_markdown, plural, printable
from evomal.verdict.comparison import Comparison, Entry, Trained, cost_of, difference_between
from evomal.verdict.statistics import Direction, Paired, direction, summarised
from evomal.verdict.words import difference_words, schedule_words

_FEW_ROWS = 1_000  # of a test part, below which another one often shows another difference
_CHANCE = 1e-4  # that validation and test differ by so many standard errors, if costs of rows were normal
_COLUMNS = ("loss", "lr", "test", "difference", "p", "wins")


def comparison_markdown(comparison: Comparison, *, verdicts: bool = True, divergences: bool = True) -> str:
    """A table with every seed, followed by notes; `verdicts` and `divergences` say whether these are among them."""
    schedule = _schedule(comparison)
    interval = "interval over seeds and test rows" if comparison.has_rows else "bootstrap interval"
    head = (
        f"Test {comparison.metric} after {schedule} on {comparison.task}, {plural(len(comparison.seeds), 'seed')} "
        f"({comparison.seeds[0]} to {comparison.seeds[-1]}), mean ± standard deviation; difference to "
        f"{comparison.baseline} in the same variant with its 95 % {interval}; p by Wilcoxon's "
        "signed-rank test unless marked as sign test"
    )
    head += _of_costs(comparison)
    if comparison.tune_lr:
        rates = comparison.rates
        span = f" from {rates[0]:g} to {rates[-1]:g}" if rates[0] < rates[-1] else ""
        what = f"the best of {plural(len(rates), 'learning rate')}{span}"
        if comparison.has_tuned_decay:
            what += ", and of weight decays in powers of ten,"
        head += f"; tuned: {what} on validation, for every loss"
    lines = [
        f"{escape_markdown(head)}.",
        "",
        f"| {' | '.join(_COLUMNS)} | all seeds |",
        "|---" * (len(_COLUMNS) + 1) + "|",
    ]
    for entry in comparison.entries:
        cells = map(escape_markdown, (*_cells(entry, comparison), _all_seeds(entry, comparison)))
        lines.append(f"| {' | '.join(cells)} |")
    sentences = [*(_verdict_sentences(comparison) if verdicts else []), *_notes(comparison)]
    sentences += _divergences(comparison) if divergences else []
    return "\n".join([*lines, "", *(f"- {escape_markdown(sentence)}" for sentence in sentences)]) + "\n"


def _schedule(comparison: Comparison) -> str:
    words = schedule_words(comparison.steps, comparison.milestones)
    training = comparison.record.get("training")
    return f"{words} ({training})" if isinstance(training, str) else words


def comparison_text(comparison: Comparison) -> str:
    """The same for a terminal, without the column of all seeds."""
    rows = [_COLUMNS, *(tuple(map(printable, _cells(entry, comparison))) for entry in comparison.entries)]
    lines = _aligned(rows)
    if max(map(len, lines)) > WIDTH:  # long names get lines of their own
        values = _aligned([row[1:] for row in rows])
        lines = [line for (name, *_), rest in zip(rows, values, strict=True) for line in (name, f"  {rest}")]
    schedule = _schedule(comparison)
    about = f"test {comparison.metric} after {schedule}, {plural(len(comparison.seeds), 'seed')}{_of_costs(comparison)}"
    wrapped = [
        _wrapped(printable(sentence))
        for sentence in [*_verdict_sentences(comparison), *_notes(comparison), *_divergences(comparison)]
    ]
    return "\n".join([textwrap.fill(printable(about), WIDTH), *lines, "", *wrapped]) + "\n"


def _of_costs(comparison: Comparison) -> str:
    """What must be said of differences where higher values are better."""
    is_said = comparison.higher_is_better
    return "; differences are those of costs, so that less than 0 is better" if is_said else ""


def _wrapped(sentence: str) -> str:
    """The sentence as an entry of a list; `p = 0.06` and `31 ± 2` stay on one line."""
    kept = re.sub(r" ([=±]) ", "\u00a0\\1\u00a0", sentence)
    lines = textwrap.fill(kept, WIDTH, initial_indent="- ", subsequent_indent="  ")
    return lines.replace("\u00a0", " ")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cells(entry: Entry, comparison: Comparison) -> tuple[str, ...]:
    trained = [loss for loss in entry.losses if loss is not None]
    name = entry.name if entry.variant == "plain" else f"{entry.name}, {entry.variant}"
    if not trained:
        return name, "", "nothing found", "", "", ""
    rates = sorted({loss.lr for loss in trained if math.isfinite(loss.lr)})
    shown_rates = "–".join(f"{rate:g}" for rate in dict.fromkeys((*rates[:1], *rates[-1:])))  # empty if not recorded
    if decays := sorted({loss.weight_decay for loss in trained if loss.weight_decay is not None}):
        shown_rates += f", decay {'–'.join(f'{decay:g}' for decay in dict.fromkeys((decays[0], decays[-1])))}"
    scores = [score for loss in trained for score in loss.scores]
    summary = summarised([math.inf if score.diverged else score.test for score in scores])
    if summary.mean is None:
        shown = "diverged"
    else:
        some = f" ({summary.diverged} of {summary.n} diverged)" if summary.diverged else ""
        shown = metric_text(summary.mean, comparison.metric, summary.deviation) + some
    if (found := entry.difference) is None:
        return name, shown_rates, shown, "", "", ""
    p = f"{found.p:.2g}" + (" (sign)" if found.test == "sign" else "")
    return name, shown_rates, shown, _difference(found, comparison.metric), p, f"{found.wins}/{found.n}"


def _difference(found: Paired, metric: str) -> str:
    if found.difference is None:
        return "—"
    shown = signed_number(found.difference, metric)
    if found.low is None or found.high is None:
        return shown
    return f"{shown} ({signed_number(found.low, metric)} to {signed_number(found.high, metric)})"


def signed_number(value: float, metric: str) -> str:
    """A difference of metrics with its sign."""
    return f"{'−' if value < 0 else '+'}{metric_number(abs(value), metric, digits=2)}"


def _all_seeds(entry: Entry, comparison: Comparison) -> str:
    rows = [
        "nothing found"
        if loss is None
        else " ".join(
            "diverged" if score.diverged else metric_number(score.test, comparison.metric) for score in loss.scores
        )
        for loss in entry.losses
    ]
    return "; ".join(rows)


def _verdict_sentences(comparison: Comparison) -> list[str]:
    return [found.sentence for found in comparison.verdicts.values()]


def _notes(comparison: Comparison) -> list[str]:
    """Notes on learned losses beside known ones, best learning rates at an end, and validation that misleads."""
    notes = _beside_known(comparison)
    is_alone = all(entry.name == comparison.baseline for entry in comparison.entries)
    if is_alone:
        notes.append(f"only {comparison.baseline}, the task's own loss, was trained, so that nothing is compared")
    notes += [note for entry in comparison.entries if (note := _end_of_rates(entry, comparison)) is not None]
    if comparison.tuning is not None and direction(comparison.tuning) is Direction.WORSE:
        name, unit = comparison.baseline, difference_unit(comparison.metric)
        found = difference_words(f"tuned {name}", f"untuned {name}", comparison.tuning, unit=unit)
        notes.append(f"{found}: on this split, validation is a poor guide to the learning rate")
    notes += _unlike_test(comparison)
    count = _rows(comparison, "test")
    if count is not None and count < _FEW_ROWS and len(comparison.seeds) > 1 and not is_alone:
        shared = plural(count, "test row")
        if comparison.has_rows and any(found.error_of_rows for found in comparison.differences.values()):
            which = "the intervals also allow for other rows, which count as independent of each other"
            notes.append(f"p is over seeds, all on the same {shared}; {which}")
        else:
            notes.append(f"intervals and p are over seeds, all on the same {shared}: other rows may show otherwise")
    return notes


def _rows(comparison: Comparison, part: str) -> int | None:
    """The number of rows of a part; None if it is not known."""
    rows = comparison.record.get("rows")
    count = rows.get(part) if isinstance(rows, dict) else None
    return count if isinstance(count, int) else None


def _unlike_test(comparison: Comparison) -> list[str]:
    """A note if the baseline does better or worse on validation than rows drawn like those of the test part would show.

    The error of a mean over rows is the one on test, for as many rows as validation has. As a few large costs decide
    that error, the mean must also lie outside of those of all blocks of test rows. In simulations (4 000 pairs of parts
    of 88 to 8 000 rows, drawn alike) at most 1 in 500 is noted for normal errors, their squares, log-normal costs and
    error rates, and 1 in 40 to 75 for the squares of Student's t with three degrees of freedom, which have no variance
    (a script that is not in the repository).
    """
    validation_rows, test_rows = (_rows(comparison, part) for part in ("validation", "test"))
    if not validation_rows or not test_rows:
        return []
    for loss in (loss for entry in comparison.entries if entry.name == comparison.baseline for loss in entry.losses):
        left_out = [] if loss is None else [score.left_out for score in loss.scores]
        if loss is None or any(score.diverged for score in loss.scores) or not all(left_out):
            continue
        error = error_of_rows([left_out], [[0.0] * len(blocks) for blocks in left_out])
        on_validation, on_test = (
            statistics.fmean(values)
            for values in zip(*((one.validation, one.test) for one in loss.scores), strict=True)
        )
        if not error:
            continue
        count = len(left_out[0])
        of_blocks = [count * on_test - (count - 1) * statistics.fmean(some) for some in zip(*left_out, strict=True)]
        likely = half_width(error * math.sqrt(1 + test_rows / validation_rows), count, 1 - _CHANCE)
        if abs(on_validation - on_test) > likely and not min(of_blocks) <= on_validation <= max(of_blocks):
            shown = " on validation and ".join(
                metric_text(value, comparison.metric) for value in (on_validation, on_test)
            )
            return [
                f"{comparison.baseline} has {shown} on test, a larger difference than rows drawn alike are likely to "
                "give: where data are sorted, or one part has wrong labels, what validation chooses may not be best on "
                "test"
            ]
    return []


def _beside_known(comparison: Comparison) -> list[str]:
    """One note for each learned loss: its difference to the best known loss that was given besides the baseline.

    The best one is that on validation: the luckiest on test would be too strong an opponent.
    """
    variant = "tuned" if comparison.tune_lr else "plain"
    rows = [one for one in comparison.entries if one.variant == variant and one.name != comparison.baseline]
    known = [(one, loss) for one in rows if not one.learned for loss in one.losses[:1] if loss is not None]
    if not known:
        return []
    higher, metric = comparison.higher_is_better, comparison.metric
    best, _ = min(known, key=lambda row: _on_validation(row[1], higher_is_better=higher).standing)
    among = f", on validation the best of {len(known)} known losses" if len(known) > 1 else ""
    both = "with both tuned, " if comparison.tune_lr else ""
    notes = []
    for one in rows:
        if one.learned and any(one.losses):
            found = difference_between(one, best, metric=metric, higher_is_better=higher)
            words = difference_words(one.name, best.name, found, unit=difference_unit(metric), to_keep="")
            notes.append(f"beside {best.name}{among}: {both}{words}")
    return notes


def _on_validation(loss: Trained, *, higher_is_better: bool) -> Scores:
    return Scores(tuple(cost_of(one, one.validation, higher_is_better=higher_is_better) for one in loss.scores))


def _divergences(comparison: Comparison) -> list[str]:
    """One note for each training that diverged and each search that found nothing."""
    notes = []
    for entry in comparison.entries:
        for number, loss in enumerate(entry.losses):
            place = f"{entry.name}, {entry.variant}" + (f", search {number}" if len(entry.losses) > 1 else "")
            if loss is None:
                notes.append(f"{place}: the search found no loss that passed its filters")
                continue
            notes += [f"{place}, seed {score.seed}: {score.sentence}" for score in loss.scores if score.diverged]
    return notes


def _end_of_rates(entry: Entry, comparison: Comparison) -> str | None:
    """A note if the best learning rate may lie outside the range that was tried."""
    if entry.variant != "tuned" or len(comparison.rates) < 2:
        return None
    ends = (comparison.rates[0], comparison.rates[-1])
    found = [loss.lr for loss in entry.losses if loss is not None]
    count = sum(lr in ends for lr in found)
    if not count:
        return None
    which = f"of {count} of {len(found)} losses " if len(found) > 1 else ""
    return (
        f"{entry.name}, tuned: the best learning rate {which}is at an end of the range that was tried, so that a rate "
        "outside may be better"
    )


def training_columns(comparison: Comparison) -> dict[str, list[Any]]:
    """The columns of `Comparison.to_dataframe`."""
    rows: list[dict[str, Any]] = []
    for entry in comparison.entries:
        for number, loss in enumerate(entry.losses):
            of_loss: dict[str, Any] = {"name": entry.name, "variant": entry.variant, "search": number}
            if loss is None:
                rows.append({**of_loss, "outcome": "nothing found"})
                continue
            of_loss |= {"formula": loss.formula, "lr": loss.lr, "factor": loss.factor}
            of_loss |= {} if loss.weight_decay is None else {"weight_decay": loss.weight_decay}
            for score in loss.scores:
                values = {"test": score.test, "validation": score.validation}
                values |= {f"test_{name}": value for name, value in score.metrics.items()}
                values = {name: math.nan if score.diverged else value for name, value in values.items()}
                rows.append({**of_loss, "seed": score.seed, "outcome": score.outcome, **values})
    names = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
