"""The loss card: one page about one loss file, to be sent around."""

import hashlib
import importlib.metadata
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text

from evomal.errors import InputError
from evomal.figures.loss_shape import LossShape, draw_loss, loss_shape
from evomal.figures.style import inline_svg
from evomal.losses import Loss, load_loss
from evomal.losses.files import loss_document
from evomal.losses.loss import Provenance
from evomal.report.formulas import mathml
from evomal.report.page import entry_list, framed, in_code
from evomal.text import (
    LONGEST_FORMULA,
    embed_markdown,
    escape_html,
    escape_markdown,
    markdown_to_html,
    printable,
    shorten,
)
from evomal.units import Units
from evomal.verdict.contestants import SEARCHES

_LONGEST_INCLUDED = 100_000
_LONGEST_LATEX = 500
_LONGEST_ENTRY, _LONGEST_NODE = 120, 24
_MOST_PARAMETERS, _MOST_ENTRIES = 30, 16


@dataclass(frozen=True)
class Card:
    """What there is to say of a loss file; nothing is escaped yet."""

    file: str
    """The file's name without its folder."""
    kind: str
    """How the loss is given: expression, taylor, neural or named."""
    task: str
    subject: str
    formula: str
    written: str
    symbols: str
    parameters: tuple[tuple[str, float], ...]
    """The weights by node in prefix order, or the numbers of the polynomial."""
    latex: str | None
    mathml: str | None
    options: Mapping[str, Any]
    units: Units | None
    """Of the targets the loss was learned on, where those were standardised."""
    shape: LossShape
    provenance: Provenance
    comparison: str | None
    """Markdown."""
    transfer: str | None
    """Markdown."""
    sha256: str
    versions: Mapping[str, str]

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return Path(self.file).stem

    @property
    def is_rewritten(self) -> bool:
        """Whether the formula is other than what the file has."""
        return self.written != self.formula

    @property
    def made_with(self) -> str:
        """The versions in words."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())

    def as_data(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        plot = {
            name: [value if math.isfinite(value) else None for value in column]
            for name, column in self.shape.columns().items()
        }
        properties = [
            {"name": found.name, "holds": found.holds, "sentence": found.sentence}
            for found in self.shape.range_of_validity
        ]
        return {
            "name": self.name, "file": self.file, "kind": self.kind, "task": self.task, "formula": self.formula,
            "written": self.written, "parameters": [{"name": name, "value": value} for name, value in self.parameters],
            "latex": self.latex, "options": dict(self.options), "target_mean": self.units and self.units.mean,
            "target_scale": self.units and self.units.scale, "properties": properties, "plot": plot,
            "provenance": self.provenance, "comparison": self.comparison, "transfer": self.transfer,
            "sha256": self.sha256, "versions": dict(self.versions),
        }  # fmt: skip

    def provenance_entries(self) -> list[tuple[str, str]]:
        """The provenance as rows, the longest cut."""
        shown = [
            (shorten(name, _LONGEST_ENTRY), shorten(_text(value), _LONGEST_ENTRY))
            for name, value in self.provenance.items()
        ]
        hidden = len(shown) - _MOST_ENTRIES
        return shown if hidden <= 0 else [*shown[:_MOST_ENTRIES], ("…", f"{hidden} more in the file")]

    def option_entries(self) -> list[tuple[str, str]]:
        """The options as rows."""
        return [(name, shorten(_text(value), _LONGEST_ENTRY)) for name, value in self.options.items()]

    def parameter_entries(self) -> list[tuple[str, str]]:
        """The first parameters as rows."""
        shown = [(name, f"{value:.6g}") for name, value in self.parameters]
        hidden = len(shown) - _MOST_PARAMETERS
        return shown if hidden <= 0 else [*shown[:_MOST_PARAMETERS], ("…", f"{hidden} more in the file")]

    def comparison_sentence(self) -> str:
        """How to get a comparison where there is none."""
        return f"not compared yet: evomal compare TASK --losses {self._quoted_file()} --out ."

    def transfer_sentence(self) -> str:
        """How to get a transfer where there is none."""
        return f"not transferred yet: evomal transfer --loss {self._quoted_file()} --to TASK --out ."

    def markdown(self, figure: str | None = None) -> str:
        """The card as Markdown; `figure` is the address of the plot, as seen from where the text will lie."""
        return markdown_text(self, figure)

    def html(self) -> str:
        """The card as one file that opens anywhere: no script, nothing from elsewhere."""
        return html_page(self)

    def shown_latex(self) -> str | None:
        """The formula in LaTeX, or the command that prints it where it is too long for a page."""
        if self.latex is None or len(self.latex) <= _LONGEST_LATEX:
            return self.latex
        return f"evomal export {self._quoted_file()} --to latex"

    def _quoted_file(self) -> str:
        return shlex.quote(printable(self.file))


def loss_card(path: Path | str, *, comparison: str | None = None, transfer: str | None = None) -> Card:
    """The card of a loss file.

    Comparison and transfer are Markdown; where none is given, `comparison.md` or `transfer.md` beside the file is read,
    or that of the comparison which searched for the loss.
    """
    path = Path(path)
    loss = load_loss(path)
    about = loss.describe()
    document = loss_document(loss)
    formula = loss.formula()
    return Card(
        file=path.name,
        kind=document["kind"],
        task=loss.kind,
        subject=f"{about.subject} for {loss.kind}",
        formula=formula,
        written=about.content,
        symbols=loss.symbols(),
        parameters=about.numbers,
        latex=loss.latex() if loss.has_formula else None,
        mathml=mathml(loss, formula),
        options=document["options"],
        units=loss.units,
        shape=loss_shape(loss, classes=_classes(loss)),
        provenance=loss.provenance,
        comparison=comparison or _beside(path, "comparison.md"),
        transfer=transfer or _beside(path, "transfer.md"),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        versions={name: importlib.metadata.version(name) for name in ("evomal", "torch", "matplotlib")},
    )


def _classes(loss: Loss) -> int:
    """As many as the loss has class weights for, within what can be sampled quickly."""
    return 10 if loss.weight is None else min(max(len(loss.weight), 2), 1_000)


def _beside(path: Path, name: str) -> str | None:
    beside = path.with_name(name)
    try:
        if not beside.exists() and path.absolute().parent.parent.name == SEARCHES:
            beside = path.absolute().parents[2] / name  # the comparison that the search was made for
        if not beside.exists():
            return None
        with beside.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_INCLUDED + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"{beside}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(text) > _LONGEST_INCLUDED:
        raise InputError(f"{beside}: must have at most {_LONGEST_INCLUDED} characters but has more")
    return text.strip() or None


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return " ".join(map(_text, value[:_LONGEST_ENTRY]))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


if TYPE_CHECKING:
    from evomal.report.card import Card

_WIDTH, _LABEL, _PROPERTY = 80, 13, 32
_MOST_LINES = 12


def markdown_text(card: "Card", figure: str | None = None) -> str:
    """The card as Markdown; `figure` is the address of the plot, as seen from where the text will lie."""
    latex = card.shown_latex()
    in_latex = [] if latex is None else ["In LaTeX:", "", "```text", latex, "```", ""]
    as_written = ["As written:", "", "```text", shorten(card.written, LONGEST_FORMULA), "```", ""]
    written = as_written if card.is_rewritten else []
    address = [] if figure is None else [f"![value and gradient beside the task loss]({quote(figure)})", ""]
    lines = [
        f"# {escape_markdown(card.name)}", "", f"{card.subject}.", "",
        "```text", shorten(card.formula, LONGEST_FORMULA), "```", "", f"{card.symbols}.", "",
        *written, *in_latex, *address,
        "## Properties", "", *_markdown_table(("property", "holds", "measured"), (
            (found.name, "yes" if found.holds else "**no**", escape_markdown(found.sentence))
            for found in card.shape.range_of_validity
        )), "",
        "## Options", "", *_markdown_entries(card.option_entries()), "",
        *(["## Parameters", "", *_markdown_entries(card.parameter_entries()), ""] if card.parameters else []),
        "## Provenance", "", *(_markdown_entries(card.provenance_entries()) or ["none recorded"]), "",
        "## Comparison", "", embed_markdown(card.comparison, card.comparison_sentence()), "",
        "## Transfer", "", embed_markdown(card.transfer, card.transfer_sentence()), "",
        f"SHA-256 of {escape_markdown(card.file)}: `{card.sha256}`. Made with {card.made_with}.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def terminal_lines(card: "Card") -> Iterator[str]:
    """The card as lines of at most eighty columns, whatever characters the file has."""
    # On one line, since what would be wrapped could pass for a line of the card's own.
    title = Text(printable(f"{card.name}: {card.subject[:1].lower()}{card.subject[1:]}"))
    title.truncate(_WIDTH, overflow="ellipsis")
    yield title.plain
    yield ""
    yield from _row("formula", card.formula)
    yield from _row("", card.symbols)
    if card.is_rewritten:
        yield from _row("written", card.written)
    if card.parameters:
        yield from _row("parameters", ", ".join(f"{value:.4g}" for _, value in card.parameters))
    yield from _row("options", ", ".join(f"{name}={value}" for name, value in card.option_entries()))
    yield ""
    for found in card.shape.range_of_validity:
        yield from _row(f"{'yes' if found.holds else 'no':<5}{found.name}", found.sentence, label_width=_PROPERTY)
    yield ""
    # Indented under words of our own, since the labels are a stranger's, too.
    yield "provenance, as the file has it"
    for name, value in card.provenance_entries():
        yield from _row(f"  {name}", value)
    yield from _row("comparison", *(_words_of(card.comparison) or [card.comparison_sentence()]))
    yield from _row("transfer", *(_words_of(card.transfer) or [card.transfer_sentence()]))
    yield from _row("sha256", card.sha256)
    yield from _row("made with", card.made_with)


def _markdown_entries(entries: Iterable[tuple[str, str]]) -> list[str]:
    rows = [(escape_markdown(name), escape_markdown(value)) for name, value in entries]
    return _markdown_table(("name", "value"), rows) if rows else []


def _markdown_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ("---",) * len(header), *rows)]


def _words_of(markdown: str | None) -> list[str]:
    """What a text says beside its tables, which are wider than a terminal."""
    lines = (markdown or "").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith(("|", "#"))]


def _row(label: str, *paragraphs: str, label_width: int = _LABEL) -> Iterator[str]:
    """A label, cut to its column, with the text beside it: a few lines that no character of a stranger's breaks."""
    lines: list[str] = []
    for paragraph in paragraphs:
        wrapped = Text(printable(paragraph)).wrap(Console(width=_WIDTH), _WIDTH - label_width)
        lines += [line.plain.rstrip() for line in wrapped]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"… {len(lines) - _MOST_LINES} more lines: see --json"]
    for index, line in enumerate(lines):
        shown = set_cell_size(printable(label) if index == 0 else "", label_width - 1)
        yield f"{shown} {line}"


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
        f"<th>{escape_html(found.name)}</th><td>{escape_html(found.sentence)}</td></tr>"
        for found in card.shape.range_of_validity
    )
    latex = card.shown_latex()
    body = _BODY.format(
        title=escape_html(card.name), subject=escape_html(card.subject), mathml=card.mathml or "",
        formula=in_code(card.formula), symbols=escape_html(card.symbols),
        written=f"<dt>written</dt><dd>{in_code(card.written)}</dd>" if card.is_rewritten else "",
        latex="" if latex is None else f"<dt>LaTeX</dt><dd>{in_code(latex)}</dd>",
        figure=inline_svg(draw_loss(card.shape), escape_html(description)), properties=properties,
        provenance=entry_list(card.provenance_entries()) or "<p>none recorded</p>",
        options=entry_list(card.option_entries()),
        parameters=f"<h2>Parameters</h2>{entry_list(card.parameter_entries())}" if card.parameters else "",
        comparison=markdown_to_html(card.comparison, card.comparison_sentence()),
        transfer=markdown_to_html(card.transfer, card.transfer_sentence()),
        file=escape_html(card.file), sha256=card.sha256, versions=escape_html(card.made_with),
    )  # fmt: skip
    return framed(f"{card.name}: loss card", body)
