"""Trees as text, as LaTeX, and as Python over torch or jax.numpy."""

from collections.abc import Sequence

from evomal.expression.operators import ATOM, CONSTANTS, EXTRA_TERMINALS, OPERATORS, PREDICTION, PRODUCT, SUM, Written
from evomal.expression.prefix import Tokens, fold

PREDICTION_LATEX = r"f_{\theta}(x)"
_LATEX_VARIABLES = {PREDICTION: PREDICTION_LATEX}
_LONGEST_PART = 44  # characters of a subexpression in code: half a line


def to_latex(tokens: Tokens, weights: Sequence[float] | None = None, digits: int = 4) -> str:
    """Returns LaTeX, with the weight of each edge, if given, as a factor."""

    def visit(position: int, token: str, arguments: Sequence[Written]) -> Written:
        if token in OPERATORS:
            written = OPERATORS[token].latex.write(*arguments)
        elif token in EXTRA_TERMINALS:
            written = EXTRA_TERMINALS[token].latex
        else:
            written = _leaf(_LATEX_VARIABLES.get(token, token))
        factor = latex_number(_weight(position, weights), digits)
        return written if factor == "1" else _scaled(factor, r" \cdot ", written)

    return fold(tokens, visit).text


def to_text(tokens: Tokens, weights: Sequence[float] | None = None, digits: int = 4) -> str:
    """Returns the text of a tree with the weight of each edge, if given, as a rounded factor: `abs(1.5*sub(y, f))`."""

    def visit(position: int, token: str, arguments: Sequence[str]) -> str:
        written = f"{token}({', '.join(arguments)})" if arguments else token
        factor = f"{_weight(position, weights):.{digits}g}"
        return written if factor == "1" else f"{factor}*{written}"

    return fold(tokens, visit)


def to_code(tokens: Tokens, weights: Sequence[float] | None, xp: str) -> list[str]:
    """Returns lines of Python that compute a tree from variables with the names of its terminals.

    The last line is the return statement. Uses the helpers `aq`, `log`, `sqrt`, `exp` and `power` (protected) and the
    module named by `xp` for the rest. A subexpression that
    would make a line too long gets a name of its own.
    """
    lines: list[str] = []

    def visit(position: int, token: str, arguments: Sequence[Written]) -> Written:
        if token in OPERATORS:
            written = OPERATORS[token].code.write(*arguments, xp=xp)
        elif token in CONSTANTS:
            # A tensor even where no variable takes part: xp.sign(1.0) is an error in torch.
            written = Written(f"{xp}.full_like(f, {CONSTANTS[token]})", ATOM)
        else:
            written = _leaf(token)
        if (weight := _weight(position, weights)) != 1.0:
            written = _scaled(repr(weight), " * ", written)
        if len(written.text) > _LONGEST_PART and position > 0:
            name = f"t{len(lines) + 1}"
            lines.append(f"{name} = {written.text}")
            written = Written(name, ATOM)
        return written

    lines.append(f"return {fold(tokens, visit).text}")
    return lines


def latex_number(number: float, digits: int) -> str:
    """Returns the number with this many significant digits, powers of ten written out."""
    mantissa, _, exponent = f"{number:.{digits}g}".partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa


def _weight(position: int, weights: Sequence[float] | None) -> float:
    return 1.0 if weights is None or position == 0 else float(weights[position - 1])


def _leaf(text: str) -> Written:
    return Written(text, SUM if text.startswith("-") else ATOM)


def _scaled(factor: str, times: str, written: Written) -> Written:
    # A leading minus sign binds like a sum: "a - -2 * b" needs its brackets.
    return Written(factor + times + written.within(PRODUCT), SUM if factor.startswith("-") else PRODUCT)
