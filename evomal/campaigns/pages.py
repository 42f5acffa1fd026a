"""The pages of `docs/results`, written from their data: `python -m evomal.campaigns.pages docs`."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, RootModel

from evomal.campaigns.claims import Claims, read_claims
from evomal.campaigns.declaration import read_campaign
from evomal.campaigns.figures import Gains, draw_gains, gains
from evomal.campaigns.leads_page import LEADS, leads_page
from evomal.campaigns.record import CampaignResult, MeasuredTask, read_document
from evomal.campaigns.tables import MeasuredTable, campaign_markdown, paragraph, short_table, table_markdown
from evomal.campaigns.zoo_cards import zoo_cards
from evomal.errors import InputError
from evomal.figures.style import save_figure
from evomal.files import write_atomically
from evomal.text import escape_markdown, plural
from evomal.zoo.entries import FOLDER

DATA, CLAIMS, PAGE, FIGURE = "results/data", "results/claims.toml", "results.md", "figures/results"
EVIDENCE, INDEX = "results/evidence.md", "paper-tables.md"


class _Data(RootModel[Annotated[CampaignResult | MeasuredTable, Field(discriminator="format")]]):
    """Any file of `docs/results/data`."""


def read_data(path: Path) -> "CampaignResult | MeasuredTable":
    """Read a file of `docs/results/data`: the result of a campaign, or a table."""
    found: CampaignResult | MeasuredTable = read_document(path, _Data, "the result of a campaign or a table").root
    return found


def pages(docs: Path) -> dict[str, str]:
    """The text of each page by its path below the folder of the documentation.

    Args:
        docs: The folder of the documentation; campaigns are declared in `campaigns/` beside it.

    Raises:
        InputError: A file cannot be read, or a claim is not what the data show.
    """
    data = _all_data(docs)
    results = _campaigns(data)
    claims = read_claims(docs / CLAIMS)
    waiting = _not_measured(docs.parent / "campaigns", data)
    try:
        first = "\n".join([*_results_page(claims, data, results), *waiting])
        evidence = "\n".join(_evidence_page(claims, results))
    except InputError as error:
        raise InputError(f"{docs / CLAIMS}: {error}") from None
    index = "\n".join(_index_page(claims, data))
    texts = {PAGE: first, EVIDENCE: evidence, INDEX: index, LEADS: "\n".join(leads_page(results))}
    found = {name: text.rstrip("\n") + "\n" for name, text in texts.items()}
    for name, one in data.items():
        own = docs / "figures" / name
        found[f"results/{name}.md"] = (
            campaign_markdown(one, own, f"../figures/{name}")
            if isinstance(one, CampaignResult)
            else table_markdown(one)
        )
    return found


def _all_data(docs: Path) -> dict[str, CampaignResult | MeasuredTable]:
    return {path.stem: read_data(path) for path in sorted((docs / DATA).glob("*.json"))}


def _campaigns(data: Mapping[str, CampaignResult | MeasuredTable]) -> dict[str, CampaignResult]:
    return {name: found for name, found in data.items() if isinstance(found, CampaignResult)}


def shown_tasks(claims: Claims, results: dict[str, CampaignResult]) -> list[MeasuredTask]:
    """The tasks of the page's table and figure, with only those contestants that the claims name."""
    tasks = []
    for name in claims.data:
        if name not in results:
            raise InputError(f"there is no result of a campaign named {name!r}")
        for task in results[name].tasks:
            if task.comparison is not None:
                kept = [row for row in task.comparison.rows if row.name in (*task.known_losses, *claims.rows)]
                shown = task.comparison.model_copy(update={"rows": tuple(kept)})
                tasks.append(task.model_copy(update={"comparison": shown}))
    return tasks


def figure_data(docs: Path) -> Gains:
    """What the figure of the page shows."""
    claims = read_claims(docs / CLAIMS)
    data = {name: read_data(docs / DATA / f"{name}.json") for name in claims.data}
    return gains([task for task in shown_tasks(claims, _campaigns(data)) if task.contestants])


def _results_page(
    claims: Claims, data: dict[str, CampaignResult | MeasuredTable], results: dict[str, CampaignResult]
) -> Iterator[str]:
    yield from ("# Results", "")
    yield from paragraph(claims.introduction, escaped=False)
    yield from (*short_table(shown_tasks(claims, results)), "")
    yield from (
        f"![Test cost of learned losses and of the best known loss, relative to the baseline]({FIGURE}.svg)",
        "",
    )
    for note in claims.notes:
        yield from paragraph(f"- {note}", escaped=False, end=False)
    yield from [""] if claims.notes else []
    yield from ("## Claims of the paper", "")
    yield from paragraph(
        f"Each claim has a verdict, and the first row of data for each direction; [all rows]({EVIDENCE}) are on a page "
        "of their own. Differences are those of costs, with 95 % intervals: less than 0 is better.",
        escaped=False,
    )
    for claim in claims.claims:
        rows_of = {one.shows: one for one in reversed(claim.evidence)}  # the first that shows each direction
        shown = "; ".join(escape_markdown(one.short(results)) for one in claim.evidence if one in rows_of.values())
        rows = f" ({shown})" if shown else ""
        words = f"- **{claim.claim}** *{claim.verdict.capitalize()}.* {claim.sentence}{rows}"
        yield from paragraph(words, escaped=False, end=False)
    yield ""
    where = f"[Where each table and figure of the paper is]({INDEX}), or why it is not here."
    yield from paragraph(where, escaped=False)
    yield from ("## Pages", "", "| page | of | searches |", "|---|---|---|")
    for name, found in data.items():
        yield _row(name, found)
    yield f"| [leads]({LEADS}) | What a lead on validation is worth | those of other pages |"
    yield ""


def _index_page(claims: Claims, data: dict[str, CampaignResult | MeasuredTable]) -> Iterator[str]:
    yield from ("# Tables and figures of the paper", "")
    yield from paragraph(f"In the paper's order; [results.md]({PAGE}) has what they come to.", escaped=False)
    yield from ("| paper | shows | here |", "|---|---|---|")
    for item in claims.paper:
        yield f"| {item.item} | {escape_markdown(item.title)} | {item.where(data)} |"


def _evidence_page(claims: Claims, results: dict[str, CampaignResult]) -> Iterator[str]:
    yield from ("# What the claims rest on", "", "Every row that a claim of [results.md](../results.md) refers to.", "")
    for claim in claims.claims:
        yield from paragraph(f"**{claim.claim}** *{claim.verdict.capitalize()}.*", escaped=False)
        for one in claim.evidence:
            yield from paragraph(f"- {escape_markdown(one.text(results))}", escaped=False, end=False)
        yield from [""] if claim.evidence else ["No row of the data is about it yet.", ""]


def _row(name: str, found: CampaignResult | MeasuredTable) -> str:
    count = (
        "" if isinstance(found, MeasuredTable) else str(sum(len(task.searches) for task in found.tasks) or "not kept")
    )
    cells = [found.title, count]
    return f"| [{name}](results/{name}.md) | {' | '.join(map(escape_markdown, cells))} |"


def _not_measured(declared: Path, data: dict[str, CampaignResult | MeasuredTable]) -> list[str]:
    """The campaigns that are declared and have no data yet."""
    waiting = [read_campaign(path) for path in sorted(declared.glob("*.toml")) if path.stem not in data]
    if not waiting:
        return []
    names = []
    for campaign in waiting:
        searches = sum(len(task.presets) * len(task.methods) * task.search_seeds for task in campaign.tasks)
        counts = f"{plural(len(campaign.tasks), 'task')}, {plural(searches, 'search')}, planned for {campaign.hardware}"
        names.append(f"`{campaign.name}` ({counts})")
    first = "Declared in `campaigns/`, and not measured yet (`evomal campaign campaigns/NAME.toml --out DIR`): "
    return paragraph(f"{first}{'; '.join(names)}.", escaped=False)


def main(docs: Path) -> None:
    """Write the pages, the cards of the zoo and the figure, and remove the pages of data that no longer exists."""
    found = pages(docs)
    for name, text in found.items():
        write_atomically(docs / name, text.encode())
    for name, card in zoo_cards(_campaigns(_all_data(docs))).items():
        write_atomically(FOLDER / f"{name}.md", card.encode())
    for path in (docs / "results").glob("*.md"):
        if f"results/{path.name}" not in found:
            path.unlink()
    drawn = figure_data(docs)
    for path in save_figure(draw_gains(drawn), docs / FIGURE, drawn.columns()):
        if path.suffix != ".svg":
            path.unlink()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
    except InputError as error:
        sys.exit(f"evomal: {error}")
