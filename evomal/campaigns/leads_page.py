"""The page on what a lead in the final of a search, measured on validation rows, comes to on test rows."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from evomal.campaigns.record import CampaignResult, FinalOn, MeasuredTask, SearchCell
from evomal.campaigns.tables import paragraph
from evomal.engine.left_out import LeftOut, error_of_rows, half_width
from evomal.runs.leads import CONFIDENCE
from evomal.text import escape_markdown, plural

LEADS = "results/leads.md"


@dataclass(frozen=True)
class _Lead:
    """What the final of one search measured, and what a comparison did."""

    task: MeasuredTask
    cell: SearchCell
    lead: float
    half: float
    """Half of its interval over seeds."""
    own: Sequence[float]
    rival: Sequence[float]
    """The test costs of the learned loss and of the known loss that it was compared with, with every seed."""
    left_out: tuple[LeftOut, LeftOut]

    @property
    def data(self) -> tuple[str, str, str]:
        """What searches share whose tasks have the same rows, though they may differ in presets and hardships."""
        return self.task.task, self.task.model, self.task.metric

    @cached_property
    def half_on_other_rows(self) -> float | None:
        """Half of its interval over seeds and rows; None if it is not known, and where splits drawn anew contain it."""
        if self.cell.half_on_other_rows is not None or self.cell.final_on == "new splits":
            return self.cell.half_on_other_rows
        own, rival = self.left_out
        error = error_of_rows([own], rival) if own and rival else None
        if error is None:
            return None
        rows = self.task.rows["validation"] / (2 if self.cell.final_on == "own rows" else 1)
        error *= math.sqrt(self.task.rows["test"] / rows)
        return math.hypot(self.half, half_width(error, len(rival[0]), CONFIDENCE))

    @property
    def is_sure(self) -> bool:
        """Whether the search recommends its loss: see `Final.leads`."""
        return self.lead > self.half

    @property
    def is_sure_on_other_rows(self) -> bool:
        return self.is_sure and (self.half_on_other_rows is None or self.lead > self.half_on_other_rows)

    @cached_property
    def on_test(self) -> float:
        """The lead on test, as a share of what the known loss comes to there."""
        return self.share(statistics.fmean(self.rival) - statistics.fmean(self.own))

    def share(self, difference: float) -> float:
        """A difference of costs as such a share; costs are negative where a higher metric is better."""
        return difference / abs(statistics.fmean(self.rival))


_RULES: Mapping[str, Callable[[_Lead], bool]] = {
    "every search": lambda one: True,
    "the lead is above zero": lambda one: one.lead > 0,
    "its interval over seeds is above zero: the rule": lambda one: one.is_sure,
    "its interval over seeds and rows is, too": lambda one: one.is_sure_on_other_rows,
}
_FINALS: Mapping[FinalOn, str] = {
    "rows of the search": "Finals on rows that also chose the losses",
    "own rows": "Finals on rows of their own",
    "new splits": "Finals with splits drawn anew for every training",
}


def leads_page(results: Mapping[str, CampaignResult]) -> list[str]:
    """The lines of the page."""
    return list(_page(_leads(results)))


def _leads(results: Mapping[str, CampaignResult]) -> list[_Lead]:
    """Every search once: with the most seeds, where several campaigns compared its loss."""
    found: dict[tuple[object, ...], _Lead] = {}
    for result in results.values():
        for task in result.tasks:
            for one in _of_task(task):
                key = task.metric, one.cell.preset, one.cell.seed, one.cell.lead, one.cell.formula
                if key not in found or len(one.own) > len(found[key].own):
                    found[key] = one
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
            if all(map(math.isfinite, (*own, *rival, *cell.lead))) and any(rival):
                yield _Lead(task, cell, *cell.lead, own, rival, (without, others))


def _page(leads: Sequence[_Lead]) -> Iterator[str]:
    yield from ("# What a lead on validation is worth", "")
    yield from paragraph(
        "A search ends with a final: its best losses and the best known ones are trained again with fresh seeds. If "
        "the 95 % interval of the lead of its best loss over the best known one is above zero, the search recommends "
        "its own. This page asks how often that was right. Campaigns trained both losses once more, with other seeds "
        "and each at its own tuned learning rate, and judged them on test rows."
    )
    yield from (
        "- command: `make results`, from the data of campaigns",
        "- commit: those of the campaigns",
        "- hardware: that of the campaigns",
        f"- n: {_counted(leads)}: all whose lead was recorded and compared, without divergence",
        "",
    )
    yield from paragraph(
        "The known loss is the one that was best in the final, of those that searches of its version knew; another one "
        "may be better on test. The rule was decided on with most of these data; docs/decisions.md says what is newer."
    )
    yield from ("## When to recommend a learned loss", "")
    yield from paragraph(
        "For each rule: how many losses it recommends, how many of these have the lower mean on test, and how many of "
        "the others do. Gain: the lead on test of the learned losses that it recommends, in percent of what the known "
        "loss comes to, and 0 for each that it does not; the mean over sets of data of the means over their searches, "
        "with Student's 95 % interval over sets, and the lowest of these means. Positive is better. The interval over "
        "seeds and rows is that of the record, else reckoned from the test rows; where that is not possible, the one "
        "over seeds decides. Tasks with the same inputs and other labels, as those of MNIST, count as sets of their "
        "own, so intervals may be too narrow."
    )
    for place, title in _FINALS.items():
        if some := [one for one in leads if one.cell.final_on == place]:
            yield from (f"**{title}** ({_counted(some)})", "")
            yield from _rules(some)
    yield from ("## By task", "")
    yield from paragraph(
        "Medians over searches, in percent of the known loss's test cost, with half the width of each interval. "
        "Better: searches whose learned loss has the lower mean on test, recommended or not. Searches on one task "
        "share its rows, so they tend to be right or wrong together. Where validation labels are wrong, leads on "
        "validation are smaller than on test."
    )
    yield from _tasks(leads)


def _counted(leads: Sequence[_Lead]) -> str:
    return f"{plural(len(leads), 'search')} on {plural(len({one.data for one in leads}), 'set')} of data"


def _rules(leads: Sequence[_Lead]) -> Iterator[str]:
    yield "| recommended if | recommended | better on test | of the others | gain, 95 % | lowest gain |"
    yield "|---|---|---|---|---|---|"
    for words, rule in _RULES.items():
        chosen, others = ([one for one in leads if rule(one) is is_chosen] for is_chosen in (True, False))
        gains = _gains(leads, rule)
        cells = (words, str(len(chosen)), _better(chosen), _better(others), _interval(gains), _percent(min(gains)))
        yield f"| {' | '.join(cells)} |"
    yield ""


def _better(leads: Sequence[_Lead]) -> str:
    count = sum(one.on_test > 0 for one in leads)
    return f"{count} of {len(leads)} ({100 * count / len(leads):.0f} %)" if leads else ""


def _gains(leads: Sequence[_Lead], rule: Callable[[_Lead], bool]) -> list[float]:
    """The mean gain on each set of data."""
    sets: dict[tuple[str, str, str], list[float]] = {}
    for one in leads:
        sets.setdefault(one.data, []).append(one.on_test if rule(one) else 0.0)
    return [statistics.fmean(gains) for gains in sets.values()]


def _interval(values: Sequence[float]) -> str:
    mean = statistics.fmean(values)
    if len(values) < 2:
        return _percent(mean)
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # here, as it takes long to import

    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return f"{_percent(mean)} ({_percent(mean - half)} to {_percent(mean + half)})"


def _percent(share: float) -> str:
    """With a sign, but for nothing."""
    text = f"{100 * abs(share):.1f}"
    return text if float(text) == 0 else f"{'−' if share < 0 else '+'}{text}"


def _tasks(leads: Iterable[_Lead]) -> Iterator[str]:
    columns = (
        "task", "searched by", "validation rows", "final on", "n", "lead on validation", "over seeds", "seeds and rows",
        "lead on test", "better", "recommended",
    )  # fmt: skip
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    groups: dict[tuple[str, str], list[_Lead]] = {}
    for one in leads:
        groups.setdefault((one.task.title, one.cell.preset), []).append(one)
    for (title, preset), some in sorted(groups.items()):
        first = some[0]
        wide = [one.share(one.half_on_other_rows) for one in some if one.half_on_other_rows is not None]
        cells = (
            escape_markdown(title),
            escape_markdown(preset),
            f"{first.task.rows.get('validation', 0):,}",
            first.cell.final_on or "not recorded",
            str(len(some)),
            _percent(statistics.median(one.share(one.lead) for one in some)),
            f"± {100 * statistics.median(one.share(one.half) for one in some):.1f}",
            f"± {100 * statistics.median(wide):.1f}" if wide else "",
            _percent(statistics.median(one.on_test for one in some)),
            str(sum(one.on_test > 0 for one in some)),
            str(sum(one.is_sure for one in some)),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
