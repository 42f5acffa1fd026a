"""Expressions as text: calls such as `abs(log(mul(y, f)))`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from evomal.checks import suggestion
from evomal.errors import InputError
from evomal.expression.operators import OPERATORS, TERMINALS, TOKENS
from evomal.expression.prefix import MAX_HEIGHT, MAX_SIZE, Tokens, fold

_LEXEME = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_]\w*|-?\d+(?:\.\d+)?)|(?P<mark>[(),])|(?P<end>\Z)|(?P<other>.))", re.DOTALL
)
_QUOTED_LENGTH = 20


@dataclass
class _Call:
    token: str
    place: int
    arguments: int = 1


def write(tokens: Tokens) -> str:
    """Returns the text of a tree; `read` returns the same tokens."""

    def visit(_: int, token: str, arguments: Sequence[str]) -> str:
        return f"{token}({', '.join(arguments)})" if arguments else token

    return fold(tokens, visit)


def read(text: str) -> Tokens:
    """Returns the tokens of one expression, in one pass and with bounded memory for any text."""
    if not isinstance(text, str):
        raise InputError(f"an expression is written as text but got {type(text).__name__}")
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
            if operand_due or open_calls:
                raise InputError(_early_end(open_calls))
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
                position = _opening(text, position, token, place)
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
    if lexeme in OPERATORS or lexeme in TERMINALS:
        return lexeme
    if lexeme in ("(", ")", ","):
        raise InputError(f"expected an operator or a terminal at character {place} but found {lexeme!r}")
    raise InputError(f"unknown token {_quoted(lexeme)} at character {place}: {suggestion(lexeme, TOKENS, 'tokens')}")


def _opening(text: str, position: int, token: str, place: int) -> int:
    match = _LEXEME.match(text, position)
    if match is None or match["mark"] != "(":
        raise InputError(f"{token} at character {place} is an operator and must be followed by '('")
    return match.end()


def _early_end(open_calls: list[_Call]) -> str:
    if not open_calls:
        return "the expression is empty"
    call = open_calls[-1]
    return f"the expression ends before {call.token} at character {call.place} is closed by ')'"


def _wrong_arity(call: _Call, received: str, place: int) -> str:
    expected = OPERATORS[call.token].arity
    return f"{call.token} takes {expected} argument{'s' * (expected > 1)} but got {received} at character {place}"


def _quoted(lexeme: str) -> str:
    return repr(lexeme if len(lexeme) <= _QUOTED_LENGTH else lexeme[:_QUOTED_LENGTH] + "…")
