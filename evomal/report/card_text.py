"""A card as text, for Markdown or a terminal."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text

from evomal.report.harmless import LONGEST_FORMULA, cut, in_markdown, included_in_markdown, printable

if TYPE_CHECKING:
    from evomal.report.card import Card

_WIDTH, _LABEL, _PROPERTY = 80, 13, 32
_MOST_LINES = 12


def markdown_text(card: "Card", figure: str | None = None) -> str:
    """The card as Markdown; `figure` is the address of the plot, as seen from where the text will lie."""
    latex = card.shown_latex()
    in_latex = [] if latex is None else ["In LaTeX:", "", "```text", latex, "```", ""]
    as_written = ["As written:", "", "```text", cut(card.written, LONGEST_FORMULA), "```", ""]
    written = as_written if card.is_rewritten else []
    address = [] if figure is None else [f"![value and gradient beside the task loss]({quote(figure)})", ""]
    lines = [
        f"# {in_markdown(card.name)}", "", f"{card.subject}.", "",
        "```text", cut(card.formula, LONGEST_FORMULA), "```", "", f"{card.symbols}.", "",
        *written, *in_latex, *address,
        "## Properties", "", *_markdown_table(("property", "holds", "measured"), (
            (found.name, "yes" if found.holds else "**no**", in_markdown(found.sentence))
            for found in card.shape.range_of_validity
        )), "",
        "## Options", "", *_markdown_entries(card.option_entries()), "",
        *(["## Parameters", "", *_markdown_entries(card.parameter_entries()), ""] if card.parameters else []),
        "## Provenance", "", *(_markdown_entries(card.provenance_entries()) or ["none recorded"]), "",
        "## Comparison", "", included_in_markdown(card.comparison, card.comparison_sentence()), "",
        "## Transfer", "", included_in_markdown(card.transfer, card.transfer_sentence()), "",
        f"SHA-256 of {in_markdown(card.file)}: `{card.sha256}`. Made with {card.made_with}.",
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
    rows = [(in_markdown(name), in_markdown(value)) for name, value in entries]
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
