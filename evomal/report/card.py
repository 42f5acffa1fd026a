"""The loss card: one page about one loss file, as HTML, Markdown, terminal text or JSON."""

import hashlib
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from evomal.errors import InputError
from evomal.figures.loss_shape import LossShape, draw_loss, loss_shape
from evomal.files import find_foreign, read_foreign
from evomal.losses import Loss, load_loss
from evomal.losses.files import MAX_BYTES, loss_document
from evomal.losses.loss import Provenance
from evomal.report.pages import figure_markup, mathml, render, versions
from evomal.text import (
    LONGEST_FORMULA,
    embed_markdown,
    escape_markdown,
    printable,
    shorten,
    value_text,
)
from evomal.units import Units
from evomal.verdict.comparison import Comparison, Transfer
from evomal.verdict.contestants import formula_of
from evomal.verdict.folder import comparisons_of, read_result
from evomal.verdict.plan import SEARCHES
from evomal.zoo import is_zoo_name, zoo_card, zoo_file

_LONGEST_INCLUDED = 100_000
_LONGEST_LATEX = 500
_LONGEST_ENTRY = 120
_MOST_PARAMETERS, _MOST_ENTRIES = 30, 16
_WIDTH, _LABEL, _PROPERTY = 80, 13, 32  # columns of the terminal
_MOST_LINES = 12


@dataclass(frozen=True)
class Card:
    """What is known about a loss file; HTML, Markdown, terminal text and JSON are made from it.

    No text in it is escaped.
    """

    file: str
    """The name of the file without its folder, or `zoo:NAME`."""
    kind: str
    """How the file defines the loss: expression, taylor, neural or named."""
    task: str
    subject: str
    formula: str
    written: str
    symbols: str
    parameters: tuple[tuple[str, float], ...]
    """The weights of an expression by node in prefix order, or the coefficients of a polynomial."""
    latex: str | None
    mathml: Markup | None
    options: Mapping[str, Any]
    units: Units | None
    """The units of the targets that the loss was learned on, if those were standardised."""
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
        """The name of the file without its suffix."""
        return Path(self.file).stem

    @property
    def is_rewritten(self) -> bool:
        """Whether the simplified formula differs from what the file has."""
        return self.written != self.formula

    @property
    def made_with(self) -> str:
        """The versions of the packages, for a sentence."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())

    def as_data(self) -> dict[str, Any]:
        """Returns the card as values that JSON can represent."""
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
        """Returns the provenance as names and shortened values."""
        shown = [
            (shorten(name, _LONGEST_ENTRY), value_text(value, _LONGEST_ENTRY))
            for name, value in self.provenance.items()
        ]
        hidden = len(shown) - _MOST_ENTRIES
        return shown if hidden <= 0 else [*shown[:_MOST_ENTRIES], ("…", f"{hidden} more in the file")]

    def option_entries(self) -> list[tuple[str, str]]:
        """Returns the options as names and values."""
        return [(name, value_text(value, _LONGEST_ENTRY)) for name, value in self.options.items()]

    def parameter_entries(self) -> list[tuple[str, str]]:
        """Returns the first parameters as names and values."""
        shown = [(name, f"{value:.6g}") for name, value in self.parameters]
        hidden = len(shown) - _MOST_PARAMETERS
        return shown if hidden <= 0 else [*shown[:_MOST_PARAMETERS], ("…", f"{hidden} more in the file")]

    def comparison_sentence(self) -> str:
        """Says how to compare the loss, for a card without a comparison."""
        return f"not compared yet: evomal compare TASK --losses {self._quoted_file()} --out ."

    def transfer_sentence(self) -> str:
        """Says how to transfer the loss, for a card without a transfer."""
        how = f"evomal transfer --loss {self._quoted_file()} --to TASK --out ."
        return f"to another task: {how}" if is_zoo_name(self.file) else f"not transferred yet: {how}"

    def markdown(self, figure: str | None = None) -> str:
        """Returns the card as Markdown; `figure` is the path of the figure, relative to the Markdown file."""
        return markdown_text(self, figure)

    def html(self) -> str:
        """Returns the card as one page that opens anywhere: it has no script and loads nothing."""
        description = f"value and gradient over {self.shape.position_name}, beside the task loss"
        return render("card.html", card=self, figure=figure_markup(draw_loss(self.shape), description))

    def shown_latex(self) -> str | None:
        """Returns the formula in LaTeX, or the command that prints it if it is too long for a page."""
        if self.latex is None or len(self.latex) <= _LONGEST_LATEX:
            return self.latex
        return f"evomal export {self._quoted_file()} --to latex"

    def _quoted_file(self) -> str:
        return shlex.quote(printable(self.file))


def loss_card(path: Path | str) -> Card:
    """Returns the card of a loss file.

    It has the comparison and the transfer of `comparison.md` and `transfer.md` beside the file, or in the folder of the
    comparison that searched for the loss, if the loss took part in them. Losses of the zoo have what was measured of
    them.

    Args:
        path: The loss file, or `zoo:NAME`.

    Returns:
        The card.

    Raises:
        InputError: If a file cannot be read, or the loss file is not valid.

    Example:
        >>> import tempfile
        >>> from evomal.losses import HuberLoss, save_loss
        >>> path = tempfile.mkdtemp() + "/huber.json"
        >>> save_loss(HuberLoss(), path)
        >>> loss_card(path).name
        'huber'
    """
    is_in_zoo = is_zoo_name(path)
    file = zoo_file(path) if is_in_zoo else Path(path)
    loss = load_loss(file)
    about = loss.describe()
    document = loss_document(loss)
    formula = loss.formula()
    return Card(
        file=str(path) if is_in_zoo else file.name,
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
        comparison=zoo_card(path) if is_in_zoo else _beside(file, Comparison, loss),
        transfer=None if is_in_zoo else _beside(file, Transfer, loss),
        sha256=hashlib.sha256(read_foreign(file, limit=MAX_BYTES, follow_links=True)).hexdigest(),
        versions=versions(),
    )


def _classes(loss: Loss) -> int:
    """The number of classes that the loss was made for, within what can be sampled quickly; 10 for any number."""
    return 10 if loss.classes is None else min(max(loss.classes, 2), 1_000)


def _beside(path: Path, kind: type[Comparison | Transfer], loss: Loss) -> str | None:
    """The text of a result beside the loss file, or in the folder of the comparison whose search found the loss.

    A result that has its JSON file there, and in which the loss took no part, is passed over.
    """
    folders = [path.parent]
    if path.absolute().parent.parent.name == SEARCHES:
        folders.append(path.absolute().parents[2])
    for folder in folders:
        place = folder / f"{kind.file_name}.md"
        content = find_foreign(place, limit=_LONGEST_INCLUDED)
        if content is None or not _took_part(loss, read_result(kind, folder)):
            continue
        try:
            return content.decode().strip() or None
        except UnicodeDecodeError as error:
            raise InputError(f"{place}: is not a text file: byte {error.start} is not UTF-8") from None
    return None


def _took_part(loss: Loss, result: Comparison | Transfer | None) -> bool:
    """Whether a result is about the loss, by its formula; yes for a text without data, which a person has put there."""
    if result is None:
        return True
    entries = [entry for found in comparisons_of(result).values() for entry in found.entries]
    compared = [trained.formula for entry in entries for trained in entry.losses if trained is not None]
    own = formula_of(loss)
    return any(formula == own or formula.startswith(f"{own} + ") for formula in compared)


def markdown_text(card: Card, figure: str | None = None) -> str:
    """Returns the card as Markdown; `figure` is the path of the figure, relative to the Markdown file."""
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


def terminal_lines(card: Card) -> Iterator[str]:
    """Yields the card as lines of at most 80 columns, whatever characters the file has."""
    # On one line: a wrapped name from the file could look like a line of the card itself.
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
    yield from _row("options", "; ".join(f"{name}={value}" for name, value in card.option_entries()))
    yield ""
    for found in card.shape.range_of_validity:
        yield from _row(f"{'yes' if found.holds else 'no':<5}{found.name}", found.sentence, label_width=_PROPERTY)
    yield ""
    # Indented below a heading of ours, because the labels are from the file, too.
    yield "provenance, as the file has it"
    entries = [(f"  {printable(name)}", value) for name, value in card.provenance_entries()]
    label_width = min(max([_LABEL, *(cell_len(label) + 1 for label, _ in entries)]), _PROPERTY)
    for label, value in entries:
        yield from _row(label, value, label_width=label_width)
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
    """The paragraphs of a text without its headings and its tables, which are wider than a terminal."""
    words: list[str] = []
    is_new = True
    for line in (markdown or "").splitlines():
        is_left_out = not line.strip() or line.lstrip().startswith(("|", "#"))
        if not is_left_out and (is_new or line.startswith("- ")):
            words.append(line)
        elif not is_left_out:
            words[-1] += f" {line.strip()}"
        is_new = is_left_out
    return [re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", line) for line in words]  # without the escapes of Markdown


def _row(label: str, *paragraphs: str, label_width: int = _LABEL) -> Iterator[str]:
    """Yields a label with the text beside it, on a few lines that no character from a file can break."""
    lines: list[str] = []
    for paragraph in paragraphs:
        wrapped = Text(printable(paragraph)).wrap(Console(width=_WIDTH), _WIDTH - label_width)
        lines += [line.plain.rstrip() for line in wrapped]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"… {len(lines) - _MOST_LINES} more lines: see --json"]
    for index, line in enumerate(lines):
        shown = set_cell_size(printable(label) if index == 0 else "", label_width - 1)
        yield f"{shown} {line}"
