"""Claims: sentences about results, each with references to the rows that support it, which are checked."""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evomal.campaigns.record import CampaignResult, MeasuredTask
from evomal.campaigns.tables import MeasuredTable, difference_text
from evomal.errors import InputError
from evomal.methods.candidates import State
from evomal.settings.texts import document
from evomal.text import plural
from evomal.verdict.comparison import Variant
from evomal.verdict.statistics import Direction, Paired, direction

BEST_KNOWN, BASELINE = "best known", "baseline"
_TRAINED = (State.EVALUATED, State.DIVERGED)
_RATES = {
    "plain": "both at the task's own rate",
    "tuned": "both tuned",
    "rescaled": "rescaled to the gradient of the baseline",
}


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Evidence(_Strict):
    """A row of a table against another, and what it shows."""

    data: str
    task: str
    row: str
    against: str = BASELINE
    """`baseline`, `best known`, or the name of a row."""
    variant: Variant = "tuned"
    shows: Literal["better", "worse", "even", "undecided"]

    def found(self, results: dict[str, CampaignResult]) -> tuple[MeasuredTask, str, Paired]:
        """The task, the name of what the row is compared with, and the difference.

        Raises:
            InputError: There is no such row, or it does not show what the claim says.
        """
        if self.data not in results:
            raise InputError(f"there is no data named {self.data!r}")
        task = results[self.data].task(self.task)
        if task.comparison is None:
            raise InputError(f"{self.data}: {self.task} is not compared yet")
        named = {BASELINE: task.comparison.baseline, BEST_KNOWN: task.best_known}
        other = named.get(self.against, self.against)
        difference = task.difference(self.row, other, self.variant)
        shown = direction(difference)
        if shown != Direction(self.shows):
            place = f"{self.data}: {self.task}: {self.row} against {other} ({self.variant})"
            raise InputError(f"{place} must show {self.shows!r} for its claim but shows {str(shown)!r}")
        return task, other, difference

    def short(self, results: dict[str, CampaignResult]) -> str:
        """The difference with its interval and n, in a few words."""
        task, _, difference = self.found(results)
        return f"{task.title}: {difference_text(difference, task)}, n = {plural(difference.n, difference.noun)}"

    def text(self, results: dict[str, CampaignResult]) -> str:
        """The difference with its interval and n, as part of a sentence."""
        task, other, difference = self.found(results)
        rate = _RATES[self.variant]
        found, n = difference_text(difference, task), plural(difference.n, difference.noun)
        return f"{task.title}: {self.row} against {other}, {rate}: {found}; n = {n}"


class TrainedShare(_Strict):
    """How much of the candidates of a method its searches trained, in percent."""

    data: str
    method: str
    least: float
    most: float
    """Between `least` and `most` in every search; a claim that says so is checked."""

    @property
    def shows(self) -> str:
        """What it is shown for, once for each method."""
        return self.method

    def short(self, results: dict[str, CampaignResult]) -> str:
        """The range, the median and n.

        Raises:
            InputError: There are no such searches, or one is out of the range.
        """
        if self.data not in results:
            raise InputError(f"there is no data named {self.data!r}")
        searches = [one for task in results[self.data].tasks for one in task.searches if one.method == self.method]
        shares = [
            100 * sum(one.counts.get(state, 0) for state in _TRAINED) / sum(one.counts.values())
            for one in searches
            if one.counts
        ]
        place = f"{self.data}: the share that {self.method} trained"
        if not shares:
            raise InputError(f"{place} is not recorded")
        low, high = min(shares), max(shares)
        if not self.least <= low <= high <= self.most:
            raise InputError(f"{place} must be {self.least:g} to {self.most:g} % but is {low:.1f} to {high:.1f} %")
        median = statistics.median(shares)
        return f"{self.method}: {low:.0f} to {high:.0f} %, median {median:.0f}, n = {plural(len(shares), 'search')}"

    def text(self, results: dict[str, CampaignResult]) -> str:
        """The same, as part of a sentence."""
        return f"{results[self.data].title}: share of the candidates that were trained, {self.short(results)}"


class Claim(_Strict):
    """One claim, whether it holds, and why."""

    claim: str
    verdict: Literal["holds", "holds in part", "does not hold", "not shown", "open"]
    sentence: str
    evidence: Annotated[tuple[Evidence | TrainedShare, ...], Field(strict=False)] = ()


class PaperItem(_Strict):
    """A table, figure or algorithm of the paper, and where it is or why it is not here."""

    item: str
    """Such as `Table 2`."""
    label: str
    """Its label in the source of the paper."""
    title: str
    campaign: str | None = None
    """The campaign that measures it."""
    figure: str | None = None
    """The kind of the campaign's figure that shows it; None: its page does."""
    text: str = ""
    """Where else it is, or why it is not here; required if there is no campaign."""

    def where(self, data: Mapping[str, CampaignResult | MeasuredTable]) -> str:
        """Where it is, in Markdown, given the results that exist by name."""
        if self.campaign is None:
            return self.text
        place = f"campaign `{self.campaign}`, not measured yet"
        if self._is_in(data.get(self.campaign)):
            place = f"[{self.campaign}](results/{self.campaign}.md)"
        return f"{place}; {self.text}" if self.text else place

    def _is_in(self, found: CampaignResult | MeasuredTable | None) -> bool:
        if self.figure is None or not isinstance(found, CampaignResult):
            return found is not None
        return any(one.kind == self.figure for task in found.tasks for one in task.figures)


class Claims(_Strict):
    """Everything on the page of results that is not data."""

    introduction: str
    notes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What to know of the table, below it."""
    data: Annotated[tuple[str, ...], Field(strict=False)]
    """The results that the table shows."""
    rows: Annotated[tuple[str, ...], Field(strict=False)]
    """The contestants that it shows."""
    claims: Annotated[tuple[Claim, ...], Field(strict=False)]
    paper: Annotated[tuple[PaperItem, ...], Field(strict=False)] = ()
    """Every table, figure and algorithm of the paper, in its order."""


def read_claims(path: Path) -> Claims:
    """Read the file of claims.

    Raises:
        InputError: The file cannot be read, or something in it breaks a rule.
    """
    try:
        found = Claims.model_validate(document(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None
    for claim in found.claims:
        if claim.verdict != "open" and not claim.evidence:
            raise InputError(f"{path}: {claim.claim!r:.60} must have evidence unless its verdict is open")
    for item in found.paper:
        if item.campaign is None and not item.text:
            rule = "must have a campaign, or a text that says where it is or why it is not here"
            raise InputError(f"{path}: {item.item} {rule}")
    return found
