"""The frame of every page: one style, no script, nothing from elsewhere."""

from collections.abc import Iterable

from evomal.figures.style import COLOUR_NAMES
from evomal.text import LONGEST_FORMULA, escape_html, shorten

_ON_DARK = {
    "blue": "#4ea5e0", "vermillion": "#f08a4b", "green": "#2fc79a", "purple": "#df9cc3", "orange": "#f0b93a",
    "sky": "#8ccdf2", "grey": "#8f979f",
}  # fmt: skip
"""Figures' colours, each as far from a dark page as it was from a light one."""

STYLE = (
    """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #5d646c; --line: #d9dde1; --good: #00734f;
  --bad: #b34700; --tint: #f5f6f7; %(light)s }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #14171a; --ink: #e4e6e8; --soft: #9aa2aa; --line: #343a40; --good: #4cc9a0; --bad: #ff9e5e;
    --tint: #1d2125; %(dark)s }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 50rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 0.875rem/1.4 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
body.wide { max-width: 64rem; }
h1 { margin: 0; font-size: 1.5rem; overflow-wrap: anywhere; }
h2 { margin: 1rem 0 0.25rem; font-size: 0.8rem; text-transform: uppercase; letter-spacing: 0.05em; color: var(--soft); }
h3 { margin: 0.5rem 0 0.25rem; font-size: 0.875rem; overflow-wrap: anywhere; }
.wide h2 { margin-top: 2rem; padding-top: 0.5rem; border-top: 1px solid var(--line); }
.wide h3 { margin-top: 1rem; }
p { margin: 0.25rem 0; overflow-wrap: anywhere; }
.soft, footer { color: var(--soft); }
.formula { margin: 0.75rem 0; padding: 0.6rem 0.9rem; background: var(--tint); border-radius: 4px; }
.formula > div { overflow-x: auto; overflow-y: hidden; }
math { font-size: 1.25rem; margin: 0.25rem 0 0.5rem; }
code { font: 0.8rem/1.4 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
pre { margin: 0.25rem 0; padding: 0.6rem 0.9rem; background: var(--tint); border-radius: 4px; white-space: pre-wrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 0.9rem; margin: 0.5rem 0 0; }
dt { color: var(--soft); }
dd { margin: 0; min-width: 0; }
svg { display: block; width: 100%%; height: auto; }
figure { margin: 0.75rem 0 1.5rem; overflow-x: auto; break-inside: avoid; }
figure svg { max-width: 52rem; min-width: 36rem; margin: 0 auto; }
figure.narrow svg { max-width: 26rem; min-width: 0; }
figcaption { color: var(--soft); }
nav { display: flex; flex-wrap: wrap; gap: 0.1rem 1rem; margin: 0.5rem 0 0; font-size: 0.8rem; }
a { color: inherit; }
table { border-collapse: collapse; width: 100%%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.12rem 0.6rem 0.12rem 0; text-align: left; vertical-align: top; font-weight: normal;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { color: var(--soft); }
.scroll { overflow-x: auto; }
.scroll:focus-visible { outline: 2px solid var(--soft); }
.scroll table { width: max-content; min-width: 100%%; }
.scroll th, .scroll td { overflow-wrap: normal; }
.scroll td { max-width: 26rem; }
.scroll .losses { width: 100%%; min-width: 46rem; }
.losses td.formula-cell { min-width: 16rem; max-width: 30rem; }
.losses svg { width: 7rem; height: 2.2rem; }
.losses th.number, .losses td.number { text-align: right; white-space: nowrap; }
details > summary { cursor: pointer; }
.verdicts { margin: 0.5rem 0; padding: 0; list-style: none; }
.verdicts li { margin: 0.4rem 0; padding: 0.5rem 0.9rem; background: var(--tint); border-radius: 4px;
  border-left: 4px solid var(--soft); overflow-wrap: anywhere; }
.verdicts li.gain { border-color: var(--good); }
.verdicts li.worse { border-color: var(--bad); }
.verdicts strong { display: block; font-size: 0.75rem; color: var(--soft); }
.note { padding-left: 0.9rem; border-left: 4px solid var(--bad); }
.properties th { color: var(--ink); white-space: nowrap; }
@media (max-width: 32rem) { body { padding: 1rem; } .properties th { white-space: normal; } }
td.yes, td.no { width: 2.5rem; font-weight: 600; color: var(--good); overflow-wrap: normal; }
td.no { color: var(--bad); }
ul { margin: 0.25rem 0; padding-left: 1.2rem; }
ol { columns: 13rem; column-gap: 1.5rem; margin: 0; padding: 0; list-style: none; font-size: 0.8rem; }
ol li { display: flex; justify-content: space-between; gap: 0.75rem; border-bottom: 1px solid var(--line);
  break-inside: avoid; font-variant-numeric: tabular-nums; }
ol span { min-width: 0; overflow-wrap: break-word; }
ol span:first-child { flex-shrink: 0; max-width: 65%%; color: var(--soft); }
ol span:last-child { text-align: right; }
footer { margin-top: 1rem; font-size: 0.75rem; overflow-wrap: anywhere; }
@page { size: A4; margin: 11mm 13mm; }
@media print {
  html { font-size: 9pt; }
  body, body.wide { max-width: none; padding: 0; line-height: 1.3; }
  h2 { margin-top: 0.5rem; break-after: avoid; }
  h3 { break-after: avoid; }
  nav { display: none; }
  svg, figure svg { width: 84%%; min-width: 0; margin: 0 auto; }
  figure.narrow svg { width: 50%%; }
  .losses { font-size: 7.5pt; }
  .losses svg { width: 5rem; height: 1.6rem; }
  .scroll { overflow: visible; }
  .scroll table, .scroll .losses { width: 100%%; min-width: 0; }
  .scroll th, .scroll td { overflow-wrap: break-word; max-width: none; min-width: 0; }
  details > summary { list-style: none; }
  .scroll .losses { width: 100%%; min-width: 46rem; }
.losses td.formula-cell { min-width: 0; }
  .too-wide { display: none; }
  tr, .verdicts li, .formula { break-inside: avoid; }
}
""".strip()
    % {
        "light": " ".join(f"--{name}: {colour};" for colour, name in COLOUR_NAMES.items()),
        "dark": " ".join(f"--{name}: {colour};" for name, colour in _ON_DARK.items()),
    }
)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body{attributes}>
{body}
</body>
</html>
"""


def framed(title: str, body: str, *, wide: bool = False) -> str:
    """A whole page; the title is escaped here, the body is HTML already."""
    return _PAGE.format(title=escape_html(title), style=STYLE, attributes=' class="wide"' if wide else "", body=body)


def in_code(text: str, longest: int = LONGEST_FORMULA) -> str:
    """The text as code, the longest cut."""
    return f"<code>{escape_html(shorten(text, longest))}</code>"


def entry_list(entries: Iterable[tuple[str, str]]) -> str:
    """Names beside their values in as many columns as there is room for; empty where there are none."""
    items = "".join(
        f"<li><span>{escape_html(name)}</span> <span>{escape_html(value)}</span></li>" for name, value in entries
    )
    return f"<ol>{items}</ol>" if items else ""


def scrolling(content: str, label: str) -> str:
    """What may be wider than a telephone, in a box that scrolls by itself, by keyboard too."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape_html(label)}">{content}</div>'
