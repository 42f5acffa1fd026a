"""Formulas of losses as people write them: text, and MathML for browsers."""

from typing import Any

from evomal.losses import Loss

LONGEST_ON_A_LINE = 90
"""Characters of the text, up to which a typeset formula fits on a line: browsers do not break mathematics."""


def mathml(loss: Loss, formula: str, *, longest: int = LONGEST_ON_A_LINE) -> str | None:
    """The formula as browsers typeset it by themselves; None where it is longer, or has no such form."""
    form = _form(loss, formula, longest)
    if form is None:
        return None
    import sympy  # slow to import

    try:
        content = str(sympy.mathml(form, printer="presentation")).replace("<mo>-</mo>", "<mo>−</mo>")
        return f'<math display="block">{content}</math>'
    except Exception:  # SymPy fails in many ways, and the text is there in any case.
        return None


def _form(loss: Loss, formula: str, longest: int) -> Any:
    """The SymPy form that reads as the formula does, or None."""
    if len(formula) > longest:
        return None
    try:
        return loss.display_form()
    except Exception:  # As above.
        return None
