"""A card as one page of HTML."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from evomal.report.harmless import LONGEST_FORMULA, cut, in_html, included_in_html
from evomal.report.loss_plot import draw_loss
from evomal.report.style import inline_svg

if TYPE_CHECKING:
    from evomal.report.card import Card


_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #5d646c; --line: #d9dde1; --good: #00734f;
  --bad: #b34700; --tint: #f5f6f7; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #14171a; --ink: #e4e6e8; --soft: #9aa2aa; --line: #343a40; --good: #4cc9a0; --bad: #ff9e5e;
    --tint: #1d2125; }
  svg [style*="#0072b2"] { stroke: #56b4e9 !important; }
  svg [style*="#d55e00"] { stroke: #f08a4b !important; }
  svg [style*="#009e73"] { stroke: #2fc79a !important; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 50rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 0.875rem/1.4 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
h1 { margin: 0; font-size: 1.5rem; overflow-wrap: anywhere; }
h2 { margin: 1rem 0 0.25rem; font-size: 0.8rem; text-transform: uppercase; letter-spacing: 0.05em; color: var(--soft); }
h3 { margin: 0.5rem 0 0.25rem; font-size: 0.875rem; }
p { margin: 0.25rem 0; }
.soft, footer { color: var(--soft); }
.formula { margin: 0.75rem 0; padding: 0.6rem 0.9rem; background: var(--tint); border-radius: 4px; }
math { font-size: 1.25rem; margin: 0.25rem 0 0.5rem; overflow-x: auto; }
code { font: 0.8rem/1.4 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 0.9rem; margin: 0.5rem 0 0; }
dt { color: var(--soft); }
dd { margin: 0; }
svg { display: block; width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.12rem 0.6rem 0.12rem 0; text-align: left; vertical-align: top; font-weight: normal;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { color: var(--soft); }
.properties th { color: var(--ink); white-space: nowrap; }
@media (max-width: 32rem) { .properties th { white-space: normal; } }
td.yes, td.no { width: 2.5rem; font-weight: 600; color: var(--good); overflow-wrap: normal; }
td.no { color: var(--bad); }
ul { margin: 0.25rem 0; padding-left: 1.2rem; }
ol { columns: 13rem; column-gap: 1.5rem; margin: 0; padding: 0; list-style: none; font-size: 0.8rem; }
ol li { display: flex; justify-content: space-between; gap: 0.75rem; border-bottom: 1px solid var(--line);
  break-inside: avoid; font-variant-numeric: tabular-nums; }
ol span { min-width: 0; overflow-wrap: break-word; }
ol span:first-child { flex-shrink: 0; max-width: 65%; color: var(--soft); }
ol span:last-child { text-align: right; }
footer { margin-top: 1rem; font-size: 0.75rem; overflow-wrap: anywhere; }
@page { size: A4; margin: 11mm 13mm; }
@media print {
  html { font-size: 9pt; }
  body { max-width: none; padding: 0; line-height: 1.3; }
  h2 { margin-top: 0.5rem; break-after: avoid; }
  svg { width: 84%; margin: 0 auto; }
  tr { break-inside: avoid; }
}
""".strip()

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: loss card</title>
<style>
{style}
</style>
</head>
<body>
<header><h1>{title}</h1><p class="soft">{subject}</p></header>
<div class="formula">
{mathml}
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
<footer>SHA-256 of {file}: {sha256}<br>made with {versions}</footer>
</body>
</html>
"""


def html_page(card: "Card") -> str:
    """The card as one file that opens anywhere: no script, nothing from elsewhere."""
    description = f"value and gradient over {card.shape.position_name}, beside the task loss"
    properties = "".join(
        f'<tr><td class="{"yes" if found.holds else "no"}">{"yes" if found.holds else "no"}</td>'
        f"<th>{in_html(found.name)}</th><td>{in_html(found.sentence)}</td></tr>"
        for found in card.shape.range_of_validity
    )
    latex = card.shown_latex()
    return _PAGE.format(
        title=in_html(card.name), style=_STYLE, subject=in_html(card.subject),
        mathml="" if card.mathml is None else f'<math display="block">{card.mathml}</math>',
        formula=_code(card.formula), symbols=in_html(card.symbols),
        written=f"<dt>written</dt><dd>{_code(card.written)}</dd>" if card.is_rewritten else "",
        latex="" if latex is None else f"<dt>LaTeX</dt><dd>{_code(latex)}</dd>",
        figure=inline_svg(draw_loss(card.shape), in_html(description)), properties=properties,
        provenance=_html_entries(card.provenance_entries()) or "<p>none recorded</p>",
        options=_html_entries(card.option_entries()),
        parameters=f"<h2>Parameters</h2>{_html_entries(card.parameter_entries())}" if card.parameters else "",
        comparison=included_in_html(card.comparison, card.comparison_sentence()),
        transfer=included_in_html(card.transfer, card.transfer_sentence()),
        file=in_html(card.file), sha256=card.sha256, versions=in_html(card.made_with),
    )  # fmt: skip


def _code(text: str) -> str:
    return f"<code>{in_html(cut(text, LONGEST_FORMULA))}</code>"


def _html_entries(entries: Iterable[tuple[str, str]]) -> str:
    items = "".join(f"<li><span>{in_html(name)}</span> <span>{in_html(value)}</span></li>" for name, value in entries)
    return f"<ol>{items}</ol>" if items else ""
