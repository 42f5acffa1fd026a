"""A card as one page of HTML."""

from typing import TYPE_CHECKING

from evomal.report.harmless import in_html, included_in_html
from evomal.report.loss_plot import draw_loss
from evomal.report.page import entry_list, framed, in_code
from evomal.report.style import inline_svg

if TYPE_CHECKING:
    from evomal.report.card import Card


_BODY = """<header><h1>{title}</h1><p class="soft">{subject}</p></header>
<div class="formula">
<div>{mathml}</div>
<dl><dt>formula</dt><dd>{formula}</dd>{written}{latex}</dl>
<p class="soft">{symbols}</p>
</div>
{figure}
<h2>Properties</h2>
<table class="properties">{properties}</table>
<h2>Comparison</h2>
{comparison}
<h2>Transfer</h2>
{transfer}
<h2>Provenance</h2>
{provenance}
<h2>Options</h2>
{options}
{parameters}
<footer>SHA-256 of {file}: {sha256}<br>made with {versions}</footer>"""


def html_page(card: "Card") -> str:
    """The card as one file that opens anywhere: no script, nothing from elsewhere."""
    description = f"value and gradient over {card.shape.position_name}, beside the task loss"
    properties = "".join(
        f'<tr><td class="{"yes" if found.holds else "no"}">{"yes" if found.holds else "no"}</td>'
        f"<th>{in_html(found.name)}</th><td>{in_html(found.sentence)}</td></tr>"
        for found in card.shape.range_of_validity
    )
    latex = card.shown_latex()
    body = _BODY.format(
        title=in_html(card.name), subject=in_html(card.subject), mathml=card.mathml or "",
        formula=in_code(card.formula), symbols=in_html(card.symbols),
        written=f"<dt>written</dt><dd>{in_code(card.written)}</dd>" if card.is_rewritten else "",
        latex="" if latex is None else f"<dt>LaTeX</dt><dd>{in_code(latex)}</dd>",
        figure=inline_svg(draw_loss(card.shape), in_html(description)), properties=properties,
        provenance=entry_list(card.provenance_entries()) or "<p>none recorded</p>",
        options=entry_list(card.option_entries()),
        parameters=f"<h2>Parameters</h2>{entry_list(card.parameter_entries())}" if card.parameters else "",
        comparison=included_in_html(card.comparison, card.comparison_sentence()),
        transfer=included_in_html(card.transfer, card.transfer_sentence()),
        file=in_html(card.file), sha256=card.sha256, versions=in_html(card.made_with),
    )  # fmt: skip
    return framed(f"{card.name}: loss card", body)
