"""The one table of operators and terminals (EvoMAL, Table 1) that every backend follows.

A rule is written once, over a namespace `xp` that offers `abs`, `sign`, `sqrt`, `log`, `tanh`, `minimum` and `maximum`:
torch, numpy and jax.numpy as they are, SymPy through an adapter. Derivatives are those of torch: sign(0) = 0, and where
the arguments of min or max tie, each takes half of the gradient. The compiled backends of the engine have these rules
and their derivatives written out; they refuse to load if the table has an operator they do not implement.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

EPSILON = 1e-7
"""The ε of the protected log(|a| + ε) and sqrt(|a| + ε), which keeps them finite at zero."""

# How tightly a written expression binds, from a sum to something that never needs brackets.
SUM, PRODUCT, POWER, ATOM = range(4)


@dataclass(frozen=True)
class Notation:
    """How an operator is written: a template for its arguments, which get brackets if they bind less than `needs`."""

    template: str
    binding: int
    needs: tuple[int, ...]

    def write(self, *arguments: "Written", **names: str) -> "Written":
        texts = [argument.within(need) for argument, need in zip(arguments, self.needs, strict=True)]
        return Written(self.template.format(*texts, **names), self.binding)


@dataclass(frozen=True)
class Written:
    """A written subexpression that remembers how tightly it binds."""

    text: str
    binding: int

    def within(self, need: int) -> str:
        """Returns the text for a place that needs this binding, in brackets if its own is looser."""
        return self.text if self.binding >= need else f"({self.text})"


@dataclass(frozen=True)
class Operator:
    """A row of the table: the value over a namespace, and how to write it in LaTeX and in Python."""

    token: str
    arity: int
    value: Callable[..., Any]
    latex: Notation
    code: Notation


def _call(template: str) -> Notation:
    """A call or anything else with brackets of its own, so that no argument needs others."""
    return Notation(template, ATOM, (SUM,) * (2 if "{1}" in template else 1))


_SUM = Notation("{0} + {1}", SUM, (SUM, SUM))
_DIFFERENCE = Notation("{0} - {1}", SUM, (SUM, PRODUCT))

# Token, arity, value, LaTeX, code. aq is the analytic quotient of Ni et al. (2012): division that is smooth and defined
# everywhere.
_ROWS = (
    Operator("add", 2, lambda xp, a, b: a + b, _SUM, _SUM),
    Operator("sub", 2, lambda xp, a, b: a - b, _DIFFERENCE, _DIFFERENCE),
    Operator(
        "mul", 2, lambda xp, a, b: a * b,
        Notation(r"{0} \cdot {1}", PRODUCT, (PRODUCT, PRODUCT)), Notation("{0} * {1}", PRODUCT, (PRODUCT, PRODUCT)),
    ),
    Operator(
        "aq", 2, lambda xp, a, b: a / xp.sqrt(1 + b * b),
        Notation(r"\frac{{{0}}}{{\sqrt{{1 + {1}^2}}}}", POWER, (SUM, ATOM)), _call("aq({0}, {1})"),
    ),
    Operator(
        "min", 2, lambda xp, a, b: xp.minimum(a, b),
        _call(r"\min\left({0}, {1}\right)"), _call("{xp}.minimum({0}, {1})"),
    ),
    Operator(
        "max", 2, lambda xp, a, b: xp.maximum(a, b),
        _call(r"\max\left({0}, {1}\right)"), _call("{xp}.maximum({0}, {1})"),
    ),
    Operator(
        "sign", 1, lambda xp, a: xp.sign(a), _call(r"\operatorname{{sign}}\left({0}\right)"), _call("{xp}.sign({0})")
    ),
    Operator("square", 1, lambda xp, a: a * a, Notation("{0}^2", POWER, (ATOM,)), Notation("{0} ** 2", POWER, (ATOM,))),
    Operator("abs", 1, lambda xp, a: xp.abs(a), _call(r"\left|{0}\right|"), _call("{xp}.abs({0})")),
    Operator(
        "log", 1, lambda xp, a: xp.log(xp.abs(a) + EPSILON),
        _call(r"\log\left(\left|{0}\right| + \epsilon\right)"), _call("log({0})"),
    ),
    Operator(
        "sqrt", 1, lambda xp, a: xp.sqrt(xp.abs(a) + EPSILON),
        _call(r"\sqrt{{\left|{0}\right| + \epsilon}}"), _call("sqrt({0})"),
    ),
    Operator("tanh", 1, lambda xp, a: xp.tanh(a), _call(r"\tanh\left({0}\right)"), _call("{xp}.tanh({0})")),
)  # fmt: skip

OPERATORS: dict[str, Operator] = {row.token: row for row in _ROWS}
BINARY_TOKENS = tuple(row.token for row in _ROWS if row.arity == 2)

TARGET, PREDICTION = "y", "f"
VARIABLES = (TARGET, PREDICTION)
CONSTANTS = {"1": 1.0, "-1": -1.0}
TERMINALS = (*VARIABLES, *CONSTANTS)

TOKENS = (*OPERATORS, *TERMINALS)


@dataclass(frozen=True)
class Space:
    """The operators and terminals that random trees are made of, in the order in which they are numbered by draws."""

    operators: tuple[str, ...]
    terminals: tuple[str, ...]

    @property
    def binary(self) -> tuple[str, ...]:
        """The operators with two arguments."""
        return tuple(token for token in self.operators if OPERATORS[token].arity == 2)

    @property
    def terminal_share(self) -> float:
        """The share of terminals among all tokens: how often a branch of a growing tree ends."""
        return len(self.terminals) / (len(self.terminals) + len(self.operators))


PAPER = Space(tuple(OPERATORS), TERMINALS)
"""The operators and terminals of the paper's Table 1."""


def arity(token: str) -> int:
    """Returns the number of arguments of a known token; a terminal has none."""
    operator = OPERATORS.get(token)
    return operator.arity if operator else 0
