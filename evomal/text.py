"""Text for people: counts, shortened values, and text from files made safe for terminals, HTML and Markdown."""

import html
import re
import textwrap
import unicodedata
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any

WIDTH = 80
"""The width, in columns, that all printed text is wrapped to."""
LONGEST_FORMULA = 1_200
"""Characters of a formula on a page or in a card; a longer one is shortened."""
LABEL_WIDTH = 13
"""Columns of the label of a line of a summary."""
_LONGEST_FILE_NAME, _LONGEST_MESSAGE = 120, 300  # characters


def plural(number: float, noun: str) -> str:
    """Returns the number with the noun, in the plural unless the number is 1: `3 seeds`, `1,024 samples`."""
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "s")) else "s"
    return f"{number:{',' if isinstance(number, int) else 'g'}} {noun}{ending}"


def with_article(noun: str) -> str:
    """Returns the noun, such as the name of a class, with its indefinite article.

    Example:
        >>> with_article("int"), with_article("Tensor"), with_article("UserDict"), with_article("ndarray")
        ('an int', 'a Tensor', 'a UserDict', 'an ndarray')
    """
    spelled = "[AEFHILMNORSX](?=[A-Z0-9]*$|[A-Z][A-Z])"  # a name in capitals is read letter by letter: an MLP
    is_vowel = re.match(f"{spelled}|[AEIOaeio]|[Uu](n(?!i|et)|[mpl])|nd", noun)
    return f"{'an' if is_vowel else 'a'} {noun}"


def labelled(label: str, text: str) -> list[str]:
    """Returns a label and its text, wrapped at 80 columns with a hanging indent; words are never broken."""
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=f"{label:<{LABEL_WIDTH}}", subsequent_indent=" " * LABEL_WIDTH,
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip
    return lines or [label]


def time_text(seconds: float) -> str:
    """Returns a time in its largest fitting unit: `12.0 s`, `1.5 min`, `2.3 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 60 else f"{minutes / 60:.1f} h"


def clock_text(seconds: float) -> str:
    """Returns a time as a clock shows it: `0:01:30`."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}"


def shorten(text: str, length: int) -> str:
    """Returns the text, or its beginning with an ellipsis if it has more characters than `length`."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def short_repr(value: Any, length: int = 60) -> str:
    """Returns the shortened `repr` of any value, for an error message."""
    try:
        return shorten(repr(value), length)
    except (RecursionError, ValueError):  # nested too deeply, or a number with too many digits to be printed
        return "something too large to show"
    except Exception:  # the `repr` of a caller's class
        return f"an object of the class {type(value).__name__}"


def value_text(value: Any, length: int = 120, *, depth: int = 4) -> str:
    """Returns a recorded value as people read it, on one line: lists with commas, nested values to some depth.

    Example:
        >>> value_text({"lr": 0.1, "milestones": [100, 135], "nesterov": True, "seed": None})
        'lr 0.1, milestones 100, 135, nesterov true, seed none'
    """
    if isinstance(value, Mapping | list | tuple) and not depth:
        return "…"
    inner = partial(value_text, length=length, depth=depth - 1)
    if isinstance(value, Mapping):
        text = ", ".join(f"{name} {inner(entry)}" for name, entry in islice(value.items(), length))
    elif isinstance(value, list | tuple):
        text = ", ".join(map(inner, value[:length])) or "none"
    elif isinstance(value, float):
        text = f"{value:.6g}"
    else:
        text = str(value).lower() if value is None or isinstance(value, bool) else str(value)
    return shorten(text, length)


def file_name(text: str) -> str:
    """Returns the text as the name of one file or folder: other characters than letters, digits and `._+-` become `_`.

    If the text is too long, its beginning is cut, as names end with what distinguishes them.

    Example:
        >>> file_name("../my task: 5 % noise-evomal-0")
        'my_task_5_noise-evomal-0'
    """
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text)[-_LONGEST_FILE_NAME:].lstrip("._") or "_"


def one_line(error: BaseException) -> str:
    """Returns the message of an error on one line, or the name of its class if it has none."""
    return " ".join(str(error).split())[:_LONGEST_MESSAGE] or type(error).__name__


def as_sentence(text: str) -> str:
    """Returns the text with a full stop and a capital letter, unless it begins with a path: `a/b.json: is damaged`.

    Example:
        >>> as_sentence("run from the folder /home/Ada")
        'Run from the folder /home/Ada.'
    """
    begins_with_path = "/" in text.partition(": ")[0] and ": " in text
    return f"{text if begins_with_path else text[:1].upper() + text[1:]}."


def printable(text: str) -> str:
    r"""Returns the text on one line, with an escape sequence for each character that a terminal or a page would obey.

    These are control characters, line breaks, characters that change the direction of writing, those that are not
    visible, and lone surrogates. All text from files and from users' code goes through here before it is shown.

    Example:
        >>> print(printable("red: \x1b[31m"))
        red: \x1b[31m
    """
    if text.isprintable():
        return text
    return "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    if unicodedata.category(character) == "Zs":
        return " "  # a space of another width
    return character.encode("unicode_escape").decode()


def escape_html(text: str) -> str:
    """Returns the text for the content of an HTML element or of a quoted attribute."""
    return html.escape(printable(text))


def escape_markdown(text: str) -> str:
    """Returns the text for one line, one item of a list, or one cell of a table, in Markdown."""
    escaped = re.sub(r"([\\`*_\[\]<>|~$&])", r"\\\1", printable(text).strip())
    # Markers of lists and headings count only at the beginning.
    return re.sub(r"^(\d*)([-+=#]+|(?<=\d)[.)])(?=\s|$)", r"\1\\\2", escaped)


def markdown_to_html(text: str) -> str:
    """Returns Markdown from a file as HTML."""
    from markdown_it import MarkdownIt  # slow to import, and most notebooks never need it

    # Links, images and HTML are not enabled: they stay text, and text is escaped.
    renderer = MarkdownIt("zero").enable(["table", "heading", "list", "emphasis", "backticks", "escape"])
    return str(renderer.render(_with_lower_headings(text)))


def embed_markdown(text: str | None, otherwise: str) -> str:
    """Returns Markdown from a file for use inside another document, or the sentence `otherwise` if there is none.

    HTML, links and code fences are escaped, so that nothing in it affects the text around it.
    """
    if text is None:
        return escape_markdown(otherwise)
    # What is escaped already stays as it is: another backslash would escape the first one and free the bracket.
    escaped = re.sub(r"(\\.)|([\[\]<])", lambda found: found[1] or f"\\{found[2]}", _with_lower_headings(text))
    # A code fence would include the text that follows, and an underline turns the line above it into a heading.
    return "\n".join(re.sub(r"^ {0,3}(?=`{3}|~{3}|=+ *$|-+ *$)", r"\\", line) for line in escaped.splitlines())


def _with_lower_headings(text: str) -> str:
    """Markdown without its title, and with its other headings on the third level."""
    lines = [printable(line.expandtabs(4)) for line in text.strip().splitlines()]
    if lines and re.match(r"# ", lines[0]):
        del lines[0]
    return "\n".join(re.sub(r"^ {0,3}#{1,6}(?= )", "###", line) for line in lines).strip()
