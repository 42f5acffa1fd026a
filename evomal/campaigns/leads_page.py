"""The page on what a lead in the final of a search, measured on validation rows, comes to on test rows."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from evomal.campaigns.record import CampaignResult, MeasuredTask, SearchCell
from evomal.campaigns.tables import paragraph
from evomal.engine.left_out import LeftOut, error_of_rows, half_width
from evomal.text import escape_markdown, plural

LEADS = "results/leads.md"
_FEW = 2000
"""Validation rows from which on a final keeps half of them to itself, unless it draws splits anew."""
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class _Lead:
    """What the final of one search measured, and what a comparison did."""

    task: MeasuredTask
    cell: SearchCell
    own: Sequence[float]
    rival: Sequence[float]
    """The test costs of the learned loss and of the known loss that it was compared with, with every seed."""
    left_out: tuple[LeftOut, LeftOut]

    @property
    def dataset(self) -> tuple[str, str]:
        """What searches of several campaigns and presets have in common."""
        return self.task.task, self.task.title

    @property
    def is_small(self) -> bool:
        return self.task.rows.get("validation", 0) < _FEW

    @property
    def validation(self) -> tuple[float, float]:
        """The lead on validation, and half its interval over seeds."""
        assert self.cell.lead is not None
        return self.cell.lead

    @cached_property
    def half_on_other_rows(self) -> float | None:
        """Half of its interval over seeds and rows; None if it is not known."""
        if self.cell.half_on_other_rows is not None:
            return self.cell.half_on_other_rows
        own, rival = self.left_out
        error = error_of_rows([own], rival) if own and rival else None
        if error is None:
            return None
        error *= math.sqrt(self.task.rows["test"] / self.task.rows["validation"])
        return math.hypot(self.validation[1], half_width(error, len(rival[0]), _CONFIDENCE))

    @cached_property
    def on_test(self) -> float:
        """The lead on test, as a share of the cost of the known loss."""
        rival = statistics.fmean(self.rival)
        return (rival - statistics.fmean(self.own)) / rival

    @cached_property
    def on_validation(self) -> float:
        """The lead on validation, as a share of that cost, too."""
        return self.validation[0] / statistics.fmean(self.rival)


def _is_sure(one: _Lead) -> bool:
    lead, half = one.validation
    return lead > half


def _is_sure_on_other_rows(one: _Lead) -> bool:
    half = one.half_on_other_rows
    return _is_sure(one) and (half is None or one.validation[0] > half)


_RULES: Mapping[str, Callable[[_Lead], bool]] = {
    "always": lambda one: True,
    "the lead is above zero": lambda one: one.validation[0] > 0,
    "its interval over seeds is above zero (the rule)": _is_sure,
    "its interval over seeds and rows is above zero": _is_sure_on_other_rows,
}


def leads_page(results: Mapping[str, CampaignResult]) -> list[str]:
    """The lines of the page."""
    return list(_page(_leads(results)))


def _leads(results: Mapping[str, CampaignResult]) -> list[_Lead]:
    """Every search once: with the most seeds, where several campaigns compared its loss."""
    found: dict[tuple[object, ...], _Lead] = {}
    for result in results.values():
        for task in result.tasks:
            for lead in _of_task(task):
                key = *lead.dataset, lead.cell.preset, lead.cell.seed, lead.cell.lead
                if key not in found or len(lead.own) > len(found[key].own):
                    found[key] = lead
    return list(found.values())


def _of_task(task: MeasuredTask) -> Iterator[_Lead]:
    if task.comparison is None:
        return
    for name in task.contestants:
        cells, costs = task.searches_of(name), task.costs(name, task.variant)
        if len(cells) != len(costs):  # a loss file, or searches that the name does not tell apart
            continue
        for cell, own, without in zip(cells, costs, task.left_out(name, task.variant), strict=True):
            if cell.lead is None or cell.rival is None or task.row(cell.rival, task.variant) is None:
                continue
            (rival,), (others,) = task.costs(cell.rival, task.variant), task.left_out(cell.rival, task.variant)
            if all(map(math.isfinite, (*own, *rival, *cell.lead))):
                yield _Lead(task, cell, own, rival, (without, others))


def _page(leads: Sequence[_Lead]) -> Iterator[str]:
    yield from ("# What a lead on validation is worth", "")
    yield from paragraph(
        "The final of a search measures by how much its best loss leads the best known loss on validation rows, and "
        "decides by it whether to recommend the learned one. Comparisons then trained both with other seeds, each at "
        "its own tuned learning rate, and judged them on test rows. This page is rendered from all searches of "
        "campaigns whose lead was recorded, and compared without divergence; each counts once."
    )
    searches, datasets = plural(len(leads), "search"), plural(len({one.dataset for one in leads}), "task")
    yield from (
        "- command: `make results`",
        "- commit: those of the campaigns",
        "- hardware: that of the campaigns",
        f"- n: {searches} on {datasets}",
        "",
    )
    yield from ("## By what rule to recommend a learned loss", "")
    yield from paragraph(
        "Better: how many of those recommended have the lower mean on test. Gain: by how much what is recommended is "
        "better on test than the known loss, in percent of that loss's cost, and 0 where the known loss is "
        "recommended: the mean over tasks of the means over their searches, with Student's 95 % interval over tasks; "
        "in the last column, how much that differs from the rule of searches. Intervals over rows are those of the "
        f"record, else reckoned from the test rows. Fewer than {_FEW:,} validation rows have also chosen the losses, "
        "unless splits are drawn anew; of more, the final has half to itself."
    )
    for title, is_small in (
        (f"Fewer than {_FEW:,} validation rows", True),
        (f"At least {_FEW:,} validation rows", False),
    ):
        some = [one for one in leads if one.is_small is is_small]
        if some:
            yield from (f"**{title}** ({plural(len(some), 'search')})", "")
            yield from _rules(some)
    yield from ("## By task", "")
    yield from paragraph(
        "Medians over searches, in percent of the known loss's test cost. Better: searches whose learned loss has the "
        "lower mean on test, recommended by the rule or not. Searches of one task share its rows, so they are right or "
        "wrong together."
    )
    yield from _tasks(leads)


def _rules(leads: Sequence[_Lead]) -> Iterator[str]:
    yield "| recommended if | recommended | better | gain, 95 % | worst task | to the rule, 95 % |"
    yield "|---|---|---|---|---|---|"
    current = _gains(leads, _is_sure)
    for words, rule in _RULES.items():
        chosen = [one for one in leads if rule(one)]
        better = sum(one.on_test > 0 for one in chosen)
        gains = _gains(leads, rule)
        share = f" ({100 * better / len(chosen):.0f} %)" if chosen else ""
        compared = (
            "" if rule is _is_sure else _interval([one - other for one, other in zip(gains, current, strict=True)])
        )
        cells = (words, str(len(chosen)), f"{better}{share}", _interval(gains), _percent(min(gains)), compared)
        yield f"| {' | '.join(cells)} |"
    yield ""


def _gains(leads: Sequence[_Lead], rule: Callable[[_Lead], bool]) -> list[float]:
    """The mean gain on each task."""
    return [statistics.fmean(one.on_test if rule(one) else 0.0 for one in some) for some in _by(leads).values()]


def _by(leads: Iterable[_Lead]) -> dict[tuple[str, str], list[_Lead]]:
    found: dict[tuple[str, str], list[_Lead]] = {}
    for one in leads:
        found.setdefault(one.dataset, []).append(one)
    return found


def _interval(values: Sequence[float]) -> str:
    mean = statistics.fmean(values)
    if len(values) < 2:
        return _percent(mean)
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # here, as it takes long to import

    quantile = float(stdtrit(len(values) - 1, (1 + _CONFIDENCE) / 2))
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return f"{_percent(mean)} ({_percent(mean - half)} to {_percent(mean + half)})"


def _percent(share: float) -> str:
    """With a sign, but for nothing."""
    text = f"{100 * abs(share):.1f}"
    return text if float(text) == 0 else f"{'−' if share < 0 else '+'}{text}"


def _tasks(leads: Sequence[_Lead]) -> Iterator[str]:
    columns = (
        "task", "searched by", "validation rows", "n", "on validation", "over seeds, ±", "and rows, ±", "on test",
        "better", "recommended",
    )  # fmt: skip
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for (_, title), some in sorted(_by(leads).items(), key=lambda entry: entry[0][1]):
        for preset in sorted({one.cell.preset for one in some}):
            own = [one for one in some if one.cell.preset == preset]
            rivals = [statistics.fmean(one.rival) for one in own]
            halves = [one.validation[1] / rival for one, rival in zip(own, rivals, strict=True)]
            wide = [
                one.half_on_other_rows / rival
                for one, rival in zip(own, rivals, strict=True)
                if one.half_on_other_rows is not None
            ]
            cells = (
                escape_markdown(title),
                escape_markdown(preset),
                f"{own[0].task.rows.get('validation', 0):,}",
                str(len(own)),
                _percent(statistics.median(one.on_validation for one in own)),
                f"{100 * statistics.median(halves):.1f}",
                f"{100 * statistics.median(wide):.1f}" if wide else "not known",
                _percent(statistics.median(one.on_test for one in own)),
                str(sum(one.on_test > 0 for one in own)),
                str(sum(map(_is_sure, own))),
            )
            yield f"| {' | '.join(cells)} |"
    yield ""
