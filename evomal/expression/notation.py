"""Trees as text such as `abs(log(mul(y, f)))`, written and read; as LaTeX, and as Python over torch or jax.numpy."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from evomal.checks import suggestion
from evomal.errors import InputError
from evomal.expression.operators import (
    ATOM,
    CONSTANTS,
    EXTRA_TERMINALS,
    OPERATORS,
    PREDICTION,
    PRODUCT,
    SUM,
    TOKENS,
    Written,
)
from evomal.expression.prefix import MAX_HEIGHT, MAX_SIZE, Tokens, fold
from evomal.text import shorten

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
    """Returns the text of a tree with the weight of each edge, if given, as a rounded factor: `abs(1.5*sub(y, f))`.

    Without weights, `read` returns the same tokens.
    """

    def visit(position: int, token: str, arguments: Sequence[str]) -> str:
        written = f"{token}({', '.join(arguments)})" if arguments else token
        factor = f"{_weight(position, weights):.{digits}g}"
        return written if factor == "1" else f"{factor}*{written}"

    return fold(tokens, visit)


def to_code(tokens: Tokens, weights: Sequence[float] | None, xp: str) -> list[str]:
    """Returns lines of Python that compute a tree from variables with the names of its terminals.

    The last line is the return statement. The code calls the protected helpers `aq`, `log`, `sqrt`, `exp` and `power`,
    and the module named by `xp` for the rest. A subexpression that would make a line too long gets a name of its own.
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


_LEXEME = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_]\w*|-?\d+(?:\.\d+)?)|(?P<mark>[(),])|(?P<end>\Z)|(?P<other>.))", re.DOTALL
)
_QUOTED_LENGTH = 20


@dataclass
class _Call:
    token: str
    place: int
    arguments: int = 1


def read(text: str) -> Tokens:
    """Returns the tokens of one expression, in one pass and with bounded memory for any text."""
    if not isinstance(text, str):
        raise InputError(f"an expression must be a string but got {type(text).__name__}")
    tokens: list[str] = []
    open_calls: list[_Call] = []
    position = 0
    operand_due = True
    while True:
        match = _LEXEME.match(text, position)
        assert match is not None  # the pattern ends in "any character" or the end of the text
        position = match.end()
        lexeme, place = match[match.lastgroup or "end"], match.start(match.lastgroup or "end") + 1
        if match["end"] is not None:
            if open_calls:
                call = open_calls[-1]
                raise InputError(f"the expression ends before {call.token} at character {call.place} is closed by ')'")
            if operand_due:
                raise InputError("the expression is empty")
            return tuple(tokens)
        if operand_due:
            token = _operand(lexeme, place)
            tokens.append(token)
            if len(tokens) > MAX_SIZE:
                raise InputError(f"an expression may have at most {MAX_SIZE} nodes, exceeded at character {place}")
            if token in OPERATORS:
                if len(open_calls) == MAX_HEIGHT:
                    raise InputError(
                        f"an expression may be at most {MAX_HEIGHT} levels high, exceeded at character {place}"
                    )
                opening = _LEXEME.match(text, position)
                if opening is None or opening["mark"] != "(":
                    raise InputError(f"{token} at character {place} is an operator and must be followed by '('")
                position = opening.end()
                open_calls.append(_Call(token, place))
            else:
                operand_due = False
        elif not open_calls:
            raise InputError(f"an expression is one tree, but {_quoted(lexeme)} follows it at character {place}")
        elif lexeme == ",":
            call = open_calls[-1]
            call.arguments += 1
            if call.arguments > OPERATORS[call.token].arity:
                raise InputError(_wrong_arity(call, "more", place))
            operand_due = True
        elif lexeme == ")":
            call = open_calls.pop()
            if call.arguments < OPERATORS[call.token].arity:
                raise InputError(_wrong_arity(call, str(call.arguments), call.place))
        else:
            raise InputError(f"expected ',' or ')' at character {place} but found {_quoted(lexeme)}")


def _operand(lexeme: str, place: int) -> str:
    if lexeme in TOKENS:
        return lexeme
    if lexeme in ("(", ")", ","):
        raise InputError(f"expected an operator or a terminal at character {place} but found {lexeme!r}")
    raise InputError(f"unknown token {_quoted(lexeme)} at character {place}: {suggestion(lexeme, TOKENS, 'tokens')}")


def _wrong_arity(call: _Call, received: str, place: int) -> str:
    expected = OPERATORS[call.token].arity
    return f"{call.token} takes {expected} argument{'s' * (expected > 1)} but got {received} at character {place}"


def _quoted(lexeme: str) -> str:
    return repr(shorten(lexeme, _QUOTED_LENGTH + 1))
