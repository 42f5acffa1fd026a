"""Text for people: counted nouns, and strangers' text made safe for terminals and pages."""

import html
import re


def cut(text: str, length: int) -> str:
    """The text, or its beginning with an ellipsis where it is longer."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def counted(number: int, noun: str) -> str:
    """The number with the noun, in the plural where it takes one."""
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"


LONGEST_FORMULA = 1_200
"""Characters, in a card; what is longer is cut."""


def printable(text: str) -> str:
    """The text on one line, with a question mark for each character that would do something to a terminal or a page."""
    return "".join(character if character.isprintable() else "?" for character in text)


def in_html(text: str) -> str:
    """The text for the inside of an element or of a quoted attribute."""
    return html.escape(printable(text))


def in_markdown(text: str) -> str:
    """The text for a line or the cell of a table."""
    return re.sub(r"([\\`*_\[\]<>|~$&])", r"\\\1", printable(text))


def included_in_html(text: str | None, sentence: str) -> str:
    """Markdown within HTML, or the sentence where there is none."""
    if text is None:
        return f"<p>{in_html(sentence)}</p>"
    from markdown_it import MarkdownIt  # later, as losses show themselves in notebooks that never need it

    # Neither links nor images nor HTML: what is not named here stays text, and text is escaped.
    renderer = MarkdownIt("zero").enable(["table", "heading", "list", "emphasis", "backticks", "escape"])
    return str(renderer.render(_below_a_heading(text)))


def included_in_markdown(text: str | None, sentence: str) -> str:
    """Markdown within Markdown, or the sentence: no HTML, no links, nothing that reaches beyond the text itself."""
    if text is None:
        return in_markdown(sentence)
    lines = _below_a_heading(text).replace("<", "&lt;").replace("[", "\\[").splitlines()
    # A fence would swallow what follows the text, and an underline makes a heading of the line above it.
    return "\n".join(re.sub(r"^ {0,3}(?=`{3}|~{3}|=+ *$|-+ *$)", r"\\", line) for line in lines)


def _below_a_heading(text: str) -> str:
    """Markdown without its own title, and with what other headings it has below the card's."""
    lines = [printable(line.expandtabs(4)) for line in text.strip().splitlines()]
    if lines and re.match(r"# ", lines[0]):
        del lines[0]
    return "\n".join(re.sub(r"^ {0,3}#{1,6}(?= )", "###", line) for line in lines).strip()
