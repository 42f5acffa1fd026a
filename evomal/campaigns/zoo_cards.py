"""The cards of the zoo: what campaigns measured of each loss, rendered from their data."""

from collections.abc import Iterator, Mapping

from evomal.campaigns.record import CampaignResult, MeasuredTask
from evomal.campaigns.tables import difference_text, paragraph, value_text
from evomal.errors import InputError
from evomal.losses import Loss, load_loss
from evomal.tasks.metric_display import metric_label
from evomal.text import escape_markdown
from evomal.zoo import zoo_card, zoo_names

_SECTION, _NEXT = "## Measured\n", "\n## "
_COLUMNS = ("task", "baseline", "best known loss", "this loss", "to the best known loss", "seeds", "page")
_WORDS = (
    "Test metric, mean of fresh seeds, every loss at its best learning rate on validation; differences with their 95 % "
    "intervals: less than 0 is better. The best known loss is the one with the lowest test mean, which favours it."
)


def zoo_cards(results: Mapping[str, CampaignResult]) -> dict[str, str]:
    """The text of each card by the name of its loss, with the section of what was measured written anew.

    Raises:
        InputError: A card has no such section, or no campaign measured its loss.
    """
    return {name: _with_table(name, zoo_card(f"zoo:{name}"), results) for name in zoo_names()}


def _with_table(name: str, card: str, results: Mapping[str, CampaignResult]) -> str:
    rows = list(_rows(load_loss(f"zoo:{name}"), results))
    before, section, rest = card.partition(_SECTION)
    if not section or not rows:
        raise InputError(f"the card of {name} must have a section {_SECTION.strip()!r} and a measured loss")
    _, end, after = rest.partition(_NEXT)
    table = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    table += [f"| {' | '.join(map(escape_markdown, row))} |" for row in rows]
    return "\n".join([f"{before}{section}", *paragraph(_WORDS), *table, ""]) + end + after


def _rows(loss: Loss, results: Mapping[str, CampaignResult]) -> Iterator[tuple[str, ...]]:
    """One row for each task on which a campaign compared the loss."""
    own = loss.provenance.get("specification")
    for name, result in results.items():
        for task in result.tasks:
            row = _row_of(loss.formula(), task)
            if row is None or task.comparison is None or task.variant != "tuned":
                continue
            baseline, best = task.comparison.baseline, task.best_known
            yield (
                f"{task.title}: {metric_label(task.metric)}{'; learned there' if task.task == own else ''}",
                *(f"{known} {value_text(task.mean(known), task)}" for known in (baseline, best)),
                value_text(task.search_means(row)[0], task),
                difference_text(task.difference(row, best), task),
                str(len(task.comparison.seeds)),
                f"docs/results/{name}.md",
            )


def _row_of(formula: str, task: MeasuredTask) -> str | None:
    """The contestant that is this loss alone, if the task was compared with it."""
    rows = () if task.comparison is None else task.comparison.rows
    alone = ((row, row.losses[0]) for row in rows if row.variant == task.variant and len(row.losses) == 1)
    return next((row.name for row, loss in alone if loss is not None and loss.formula == formula), None)
