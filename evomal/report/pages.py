"""HTML from the templates: one environment, in which every value is escaped unless evomal made it as markup itself."""

import importlib.metadata
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from evomal import __version__
from evomal.figures import style
from evomal.losses import Loss
from evomal.text import LONGEST_FORMULA, as_sentence, escape_html, markdown_to_html, printable, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST_ON_A_LINE = 90
"""The number of characters up to which a typeset formula fits on one line: browsers do not break mathematics."""
_TEMPLATES = Path(__file__).with_name("templates")
_LONGEST_COMMAND, _LONGEST_IN_TABLE = 4_000, 90  # characters
_DARK_COLOURS = {
    "blue": "#4ea5e0", "vermillion": "#f08a4b", "green": "#2fc79a", "purple": "#df9cc3", "orange": "#f0b93a",
    "sky": "#8ccdf2", "yellow": "#d9cd3c", "grey": "#8f979f", "pale": "#4a5158",
}  # fmt: skip
"""The colours of figures on a dark page, with about the contrast that the usual ones have on a light page."""


def render(template: str, **data: Any) -> str:
    """Returns the template filled with the data; everything that is not marked by `own_markup` is escaped."""
    return _environment().get_template(template).render(**data)


def own_markup(markup: str) -> Markup:
    """Marks SVG, MathML or HTML as safe to include in a page.

    Only for markup that evomal has made itself, with every text from a file in it escaped: templates do not escape it
    again, and nothing else is exempt from escaping.
    """
    return Markup(markup)


def figure_markup(figure: "Figure", description: str, prefix: str = "") -> Markup:
    """Returns the figure as an SVG element; `prefix` keeps names inside several figures on one page apart."""
    return own_markup(style.inline_svg(figure, escape_html(description), prefix))


def versions() -> dict[str, str]:
    """Returns the versions of the packages that a page is made with."""
    others = {name: importlib.metadata.version(name) for name in ("torch", "matplotlib")}
    return {"evomal": __version__, **others}


def mathml(loss: Loss, formula: str, *, longest: int = LONGEST_ON_A_LINE) -> Markup | None:
    """Returns the formula for browsers to typeset; None if it has more characters or no symbolic form."""
    import sympy

    if len(formula) > longest:
        return None
    try:
        form = loss.display_form()
        if form is None:
            return None
        content = str(sympy.mathml(form, printer="presentation")).replace("<mo>-</mo>", "<mo>−</mo>")
    except Exception:  # SymPy fails in many ways, and the page has the text in any case.
        return None
    return own_markup(f'<math display="block">{content}</math>')


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "as_sentence": as_sentence,
        "markdown": lambda text: own_markup(markdown_to_html(text)),
        "shorten": shorten,
    }
    environment.globals |= {
        "light_colours": {name: colour for colour, name in style.COLOUR_NAMES.items()},
        "dark_colours": _DARK_COLOURS,
        "LONGEST_COMMAND": _LONGEST_COMMAND,
        "LONGEST_FORMULA": LONGEST_FORMULA,
        "LONGEST_IN_TABLE": _LONGEST_IN_TABLE,
    }
    return environment


def _without_control_characters(value: Any) -> Any:
    """Replaces characters that a browser would obey, such as those that reverse the direction of writing."""
    return value if isinstance(value, Markup) else printable(str(value))
