"""The tables of a campaign as Markdown, all rendered from its result, and tables that scripts measured."""

import json
import math
import statistics
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from evomal.campaigns.declaration import SEARCH_FIGURES, TRAINED_FIGURES
from evomal.campaigns.record import LEARNED, CampaignResult, FrozenModel, MeasuredTask, Provenance, is_searched
from evomal.files import write_atomically
from evomal.tasks.metric_display import metric_label, metric_number
from evomal.text import escape_markdown, plural, shorten
from evomal.verdict.statistics import Direction, Paired, direction
from evomal.verdict.tables import comparison_markdown, signed_number

_LONGEST_FORMULA = 160
_SUMMARY = ("task", "tuned baseline", "best known loss", "searched by", "n", "each search's loss", "learned: median",
            "recommended: median, worst", "worst recommended, to the baseline", "learned, to the baseline",
            "learned, to the best known loss")  # fmt: skip


class MeasuredTable(FrozenModel):
    """A table that a script measured, without a campaign of searches and comparisons."""

    format: Literal["evomal-table"] = "evomal-table"
    version: Literal[1] = 1
    name: str
    title: str
    about: str
    command: str
    commit: str
    hardware: str
    n: str
    """What was counted, in words."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        """Write the table as JSON, one line for each row."""
        content = self.model_dump(mode="json")
        rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in content.pop("rows"))
        parts = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items()]
        write_atomically(path, ("{\n" + ",\n".join([*parts, f' "rows": [\n{rows}\n ]']) + "\n}\n").encode())


def campaign_markdown(result: CampaignResult, figures: Path | None = None, address: str = "figures") -> str:
    """The page of a campaign: where its numbers come from, one table, then every training of each task.

    `figures`: the folder of its figures, of which the existing ones are shown; `address`: its path from the page.
    """
    lines = [f"# {escape_markdown(result.title)}", ""]
    lines += [*paragraph(result.about), *paragraph(result.note), *_provenance(result), ""]
    compared = [task for task in result.tasks if task.comparison is not None]
    if compared:
        lines += [*summary_table(compared), "", *_legend(compared), ""]
        lines += _shown("gains", "gains over the tuned baseline", figures, address)
    if result.left:
        tasks = Counter(name.partition("/")[0] for name in result.left)
        names = ", ".join(f"{count} of `{task}`" for task, count in tasks.items())
        lines += [f"**Not finished**: {plural(len(result.left), 'cell')} of this campaign, {names}.", ""]
    for task in result.tasks:
        lines += [f"## {escape_markdown(task.title)}", "", *_task(task), *_figures(task, figures, address)]
    return "\n".join(lines).rstrip("\n") + "\n"


def task_lines(task: MeasuredTask) -> Iterator[str]:
    """One line for each contestant of a task, for a terminal."""
    if task.comparison is None:
        yield f"{task.title}: {plural(len(task.searches), 'search')} done, not compared yet"
        return
    for _, baseline, best, name, count, _, median, advised, _, difference, to_best in _summary_cells(task):
        searched = f"median {median} over {plural(int(count), 'search')}" if is_searched(name) else median
        found = f"{name}: {searched}" if median else name
        also = f"; recommended {advised}" if advised else ""
        beside = f"; {to_best} to {best}" if to_best and best != baseline else ""
        yield f"{task.title}: {found}{also}; {difference} to {baseline}{beside}"


def summary_table(tasks: Sequence[MeasuredTask]) -> list[str]:
    """One row for each task and contestant."""
    return _table(tasks, range(len(_SUMMARY)))


def short_table(tasks: Sequence[MeasuredTask]) -> list[str]:
    """The same without the columns of single searches, for a page that shows several campaigns."""
    return _table(tasks, (0, 1, 2, 3, 4, 6, 7, 10))


def _table(tasks: Sequence[MeasuredTask], kept: Sequence[int]) -> list[str]:
    lines = [f"| {' | '.join(_SUMMARY[place] for place in kept)} |", "|---" * len(kept) + "|"]
    for task in tasks:
        for number, cells in enumerate(_summary_cells(task)):
            shown = cells if not number else ("", "", "", *cells[3:])
            lines.append(f"| {' | '.join(escape_markdown(shown[place]) for place in kept)} |")
    return lines


def table_markdown(found: MeasuredTable) -> str:
    """The page of a table that a script measured."""
    lines = [f"# {escape_markdown(found.title)}", "", *paragraph(found.about), f"- command: `{found.command}`"]
    facts = {"commit": found.commit, "hardware": found.hardware, "n": found.n}
    lines += [f"- {label}: {escape_markdown(text)}" for label, text in facts.items()]
    lines += ["", f"| {' | '.join(map(escape_markdown, found.columns))} |", "|---" * len(found.columns) + "|"]
    lines += [f"| {' | '.join(map(escape_markdown, row))} |" for row in found.rows]
    lines += ["", *(f"- {escape_markdown(note)}" for note in found.notes)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _summary_cells(task: MeasuredTask) -> Iterator[tuple[str, ...]]:
    assert task.comparison is not None
    baseline, best = task.comparison.baseline, task.best_known
    first = (
        f"{task.title}: {metric_label(task.metric)}",
        f"{baseline} {value_text(task.mean(baseline), task)}",
        f"{best} {value_text(task.mean(best), task)}",
    )
    names = task.contestants
    for name in names:
        means, advised = task.search_means(name), task.recommended_means(name)
        learned = sum(cell.recommended == LEARNED for cell in task.searches_of(name))
        if advised is None:
            missing = ", ".join(task.not_compared(name))
            used = missing and f"not compared: {missing}"
        else:
            used = f"{_median(advised, task)}, {value_text(max(advised), task)} ({learned} learned)"
        to_best = difference_text(task.difference(name, best), task)
        to_baseline = difference_text(task.difference(name, baseline), task)
        each = " ".join(_each_search(name, task))
        worst = "" if advised is None else _worst_recommended(name, task)
        yield (*first, name, str(len(means)), each, _median(means, task), used, worst, to_baseline, to_best)
    if not names:
        difference = difference_text(task.difference(best, baseline), task) if best != baseline else "the same"
        yield (*first, "no search", "0", "", "", "", "", f"{best}: {difference}", "")


def _worst_recommended(name: str, task: MeasuredTask) -> str:
    """The worst loss that a search recommends, with its difference to the baseline over seeds."""
    assert task.comparison is not None
    worst, place = task.worst_recommended(name)
    baseline = task.comparison.baseline
    if worst == baseline:
        return f"{baseline} itself"
    label = "learned" if worst == name else worst
    return f"{label}: {difference_text(task.difference(worst, baseline, place=place), task)}"


def _median(costs: Sequence[float], task: MeasuredTask) -> str:
    return value_text(statistics.median(costs), task)


def _each_search(name: str, task: MeasuredTask) -> list[str]:
    """The mean of each search's loss, best first; `none` where a search found nothing."""
    row = task.row(name, task.variant)
    found = sorted(zip(task.search_means(name), row.losses if row else (), strict=True), key=lambda pair: pair[0])
    return ["none" if loss is None else value_text(mean, task) for mean, loss in found]


def _legend(tasks: Sequence[MeasuredTask]) -> list[str]:
    seeds = sorted({len(task.comparison.seeds) for task in tasks if task.comparison is not None})
    rates = sorted(
        {len(task.comparison.rates) for task in tasks if task.comparison is not None and task.variant == "tuned"}
    )
    counted = " or ".join(map(str, seeds))
    tuned = f", each loss at its best of {' or '.join(map(str, rates))} learning rates on validation" if rates else ""
    compared = [task for task in tasks if task.comparison is not None]
    with_rows = [task for task in compared if task.has_rows]
    rows = ", which allow for other test rows" if with_rows else ", for these test rows"
    if 0 < len(with_rows) < len(compared):
        rows += f" on {', '.join(task.title for task in with_rows)}"
    without = [task.title for task in compared if not task.has_tuned_decay]
    what = (
        "learning rates and weight decays are tuned"
        if len(without) < len(compared)
        else "only learning rates are tuned"
    )
    if 0 < len(without) < len(compared):
        what += f" (learning rates only: {'; '.join(without)})"
    has_brackets = any(cell.half_on_other_rows is not None for task in tasks for cell in task.searches)
    brackets = ", in brackets of one that also allows for other validation rows" if has_brackets else ""
    return _wrapped(
        f"Test metric, mean of {counted} evaluation seeds that no search has used{tuned}; lower is better unless the "
        "metric says otherwise. n: searches, or one loss file. Differences are mean differences of costs with 95 % "
        f"intervals: of the two intervals, over searches and over seeds, the outer ends{rows}. Less than 0 is better; "
        '"better" or "worse" follows if there are at least five pairs, the interval excludes 0 and p is at most '
        "0.0625, the smallest p of five pairs; nothing is corrected for the number of comparisons. The best known loss "
        "has the lowest test mean, which favours it; known losses have their default options unless the name shows "
        f"others, and {what}. Recommended: the loss that a search recommends, its own or a known "
        "one. ± is a standard deviation behind a mean, and half of a 95 % interval behind a difference or a "
        f"lead{brackets}."
    )


def difference_text(found: Paired, task: MeasuredTask) -> str:
    """A difference with its interval; marked if it is confirmed."""
    if found.difference is None:
        return f"{found.diverged} of {found.n} diverged"
    shown = signed_number(found.difference, task.metric)
    if found.low is None or found.high is None:
        return f"{shown} ({found.diverged} of {found.n} diverged)" if found.diverged else shown
    ends = (signed_number(end, task.metric) for end in (found.low, found.high))
    text = f"{shown} ({' to '.join(ends)})"
    words = {Direction.BETTER: ", better", Direction.WORSE: ", worse"}
    return text + words.get(direction(found), "")


def value_text(cost: float, task: MeasuredTask) -> str:
    """A cost as the metric's value, without its unit."""
    if not math.isfinite(cost):
        return "diverged"
    return metric_number(-cost if task.higher_is_better else cost, task.metric, digits=3)


def _provenance(result: CampaignResult) -> list[str]:
    """Command, commits, hardware, times and numbers of the page."""
    searches = [cell.made for task in result.tasks for cell in task.searches]
    comparisons = [task.comparison for task in result.tasks if task.comparison is not None]
    everything = [*searches, *(cell.made for cell in comparisons)]
    trained = sum(cell.trainings for cell in comparisons)
    lines = [f"- command: `{result.command}`"]
    for label, values in (
        ("commit", [one.commit for one in everything]),
        ("hardware", [one.hardware for one in everything]),
    ):
        lines.append(f"- {label}: {'; '.join(_counted(values))}")
    lines.append(
        f"- {plural(len(searches), 'search')} in {_time(searches)}; {plural(trained, 'final training')}, those of "
        f"tuning not counted, in {_time([cell.made for cell in comparisons])}"
    )
    return lines


def _counted(values: Sequence[str]) -> list[str]:
    names = list(dict.fromkeys(values))
    if len(names) == 1:
        return [escape_markdown(names[0])]
    return [f"{escape_markdown(name)} ({plural(values.count(name), 'cell')})" for name in names]


def _time(made: Sequence[Provenance]) -> str:
    seconds = [one.seconds for one in made if one.seconds is not None]
    if not seconds:
        return "a time that was not recorded" if made else "no time"
    total, each = sum(seconds), f"{min(seconds):.0f} to {max(seconds):.0f} s each"
    return f"{total / 60:.0f} min ({each})" if total >= 60 else f"{total:.0f} s ({each})"


def _task(task: MeasuredTask) -> Iterator[str]:
    rows = ", ".join(f"{count:,} {part}" for part, count in task.rows.items())
    model = f", model {task.model}" if task.model else ""
    yield from _wrapped(f"`{task.task}`{model}{f'; {rows} rows' if rows else ''}.")
    yield ""
    if task.comparison is not None:
        yield from comparison_markdown(task.as_comparison(), divergences=False).rstrip("\n").split("\n")
        yield ""
    if task.searches:
        yield from _search_table(task)
        yield ""


def _figures(task: MeasuredTask, figures: Path | None, address: str) -> Iterator[str]:
    """The figures of a task that exist, each with a description where there is one."""
    described = {cell.kind: cell for cell in task.figures}
    for kind in (*SEARCH_FIGURES, *TRAINED_FIGURES):
        words = kind.replace("-", " ")
        if kind in described:
            made = described[kind].made
            yield from _wrapped(f"**{words.capitalize()}** ({made.hardware}, commit {made.commit}):")
            yield from ("", *(f"- {escape_markdown(line)}" for line in described[kind].lines), "")
        yield from _shown(f"{task.name}-{kind}", f"{task.title}: {words}", figures, address)


def _shown(name: str, words: str, figures: Path | None, address: str) -> list[str]:
    if figures is None or not (figures / f"{name}.svg").is_file():
        return []
    return [f"![{escape_markdown(words)}]({address}/{name}.svg)", ""]


def _search_table(task: MeasuredTask) -> Iterator[str]:
    columns: tuple[str, ...] = (
        "searched by",
        "seed",
        "validation",
        "lr",
        "recommended",
        "lead over",
        "seconds",
        "loss",
        "family",
    )
    has_families = any(cell.family for cell in task.searches)
    columns = columns if has_families else columns[:-1]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for cell in task.searches:
        lead = "" if cell.rival is None else cell.rival
        if cell.lead is not None:
            known = (abs(cell.lead[0]), cell.lead[1], cell.half_on_other_rows)
            size, half, *rows = (metric_number(one, task.metric, digits=2) for one in known if one is not None)
            others = f" (± {rows[0]})" if rows else ""
            lead = f"{cell.rival}: {'−' if cell.lead[0] < 0 else ''}{size} ± {half}{others}"
        cells: tuple[str, ...] = (
            cell.contestant,
            str(cell.seed),
            "" if cell.fitness is None else metric_number(cell.fitness, task.metric, digits=3),
            "" if cell.lr is None else f"{cell.lr:.3g}",
            cell.recommended or "",
            lead,
            "" if cell.made.seconds is None else f"{cell.made.seconds:.0f}",
            "nothing survived" if cell.formula is None else shorten(cell.formula, _LONGEST_FORMULA),
            cell.family or "",
        )
        cells = cells if has_families else cells[:-1]
        yield f"| {' | '.join(escape_markdown(text) for text in cells)} |"


def paragraph(text: str, *, escaped: bool = True, end: bool = True) -> list[str]:
    """The lines of a paragraph, with an empty one at its end; nothing for an empty text."""
    lines = _wrapped(escape_markdown(text) if escaped else text, "  " if text.startswith("- ") else "")
    return [*lines, *([""] if end else [])] if text else []


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, 120, break_on_hyphens=False, break_long_words=False, subsequent_indent=indent)
