"""The one table of operators and terminals that every backend follows: EvoMAL's Table 1, and what extends it.

A rule is written once, over a namespace `xp` that offers `abs`, `sign`, `sqrt`, `log`, `exp`, `tanh`, `clip`, `minimum`
and `maximum`: torch, numpy and jax.numpy as they are, SymPy through an adapter. Derivatives are those of torch:
sign(0) = 0, and where the arguments of min or max tie, each takes half of the gradient. The compiled backends in
`evomal.forest` have these rules and their derivatives written out; they refuse to load if the table has an operator
that they do not implement.

A terminal belongs to one output of the model. It may depend on all outputs of the sample, but never on the target, so
that the loss of a target that is a distribution over the classes is the expected loss of its classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evomal.checks import suggestion
from evomal.errors import InputError
from evomal.text import short_repr

EPSILON = 1e-7
"""The ε of the protected log(|a| + ε) and sqrt(|a| + ε), which keeps them finite at zero."""

LARGEST_EXPONENT = 40.0
"""exp and pow stop growing at e⁴⁰ ≈ 2·10¹⁷: its square, and first and second derivatives of a power, are still finite
in single precision, while squares of errors up to 10⁸ are not changed."""

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
    """A call, or anything else with brackets of its own, so that its arguments need none."""
    return Notation(template, ATOM, (SUM,) * (2 if "{1}" in template else 1))


_SUM = Notation("{0} + {1}", SUM, (SUM, SUM))
_DIFFERENCE = Notation("{0} - {1}", SUM, (SUM, PRODUCT))


def _power(xp: Any, a: Any, b: Any) -> Any:
    """|a|^b, finite everywhere: |a| is at least ε, and the value at most that of `exp`."""
    return xp.exp(xp.clip(b * xp.log(xp.clip(xp.abs(a), EPSILON, None)), None, LARGEST_EXPONENT))


# Token, arity, value, LaTeX, code; binary operators come first. aq is the analytic quotient of Ni et al. (2012):
# division that is smooth and defined everywhere. The weight of the second edge of pow makes its exponent a trained one.
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
    Operator("pow", 2, _power, Notation(r"\left|{0}\right|^{{{1}}}", POWER, (SUM, SUM)), _call("power({0}, {1})")),
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
    Operator(
        "exp", 1, lambda xp, a: xp.exp(xp.clip(a, None, LARGEST_EXPONENT)),
        Notation(r"e^{{{0}}}", POWER, (SUM,)), _call("exp({0})"),
    ),
)  # fmt: skip

OPERATORS: dict[str, Operator] = {row.token: row for row in _ROWS}
BINARY_TOKENS = tuple(row.token for row in _ROWS if row.arity == 2)

TARGET, PREDICTION = "y", "f"
VARIABLES = (TARGET, PREDICTION)
CONSTANTS = {"1": 1.0, "-1": -1.0}
LOG_PROBABILITY, BALANCED, MARGIN, PRIOR, PROGRESS = "logp", "blogp", "margin", "prior", "t"


@dataclass(frozen=True)
class Terminal:
    """A row of the table of terminals that the paper does not have."""

    token: str
    meaning: str
    latex: Written
    is_prediction: bool
    """Whether it depends on the model's outputs."""
    is_of_classes: bool
    """Whether it exists for classification and multilabel tasks only."""


# Log-probabilities are exact, where log(f) would be log(f + ε). For a single logit and for the labels of a multilabel
# task, the other class of each is the absence of the label.
_TERMINAL_ROWS = (
    Terminal(
        LOG_PROBABILITY, "exact log f", Written(r"\log f_{\theta}(x)", PRODUCT),
        is_prediction=True, is_of_classes=True,
    ),
    Terminal(
        BALANCED, "exact log f with the log of each class's share of the training rows added to its logit",
        Written(r"\log \tilde{f}_{\theta}(x)", PRODUCT), is_prediction=True, is_of_classes=True,
    ),
    Terminal(
        MARGIN, "logit minus the largest other logit of the sample", Written("m", ATOM),
        is_prediction=True, is_of_classes=True,
    ),
    Terminal(
        PRIOR, "share of the class in the training rows", Written(r"\pi", ATOM),
        is_prediction=False, is_of_classes=True,
    ),
    Terminal(
        PROGRESS, "share of the training that is done, from 0 to 1", Written("t", ATOM),
        is_prediction=False, is_of_classes=False,
    ),
)  # fmt: skip

EXTRA_TERMINALS: dict[str, Terminal] = {row.token: row for row in _TERMINAL_ROWS}
PREDICTIONS = (PREDICTION, *(row.token for row in _TERMINAL_ROWS if row.is_prediction))
"""Terminals that depend on the model's outputs, one of which a loss must use."""
TERMINALS = (*VARIABLES, *CONSTANTS, *EXTRA_TERMINALS)

TOKENS = (*OPERATORS, *TERMINALS)


@dataclass(frozen=True)
class Space:
    """The operators and terminals that random trees are made of, in the order in which they are numbered by draws."""

    operators: tuple[str, ...]
    terminals: tuple[str, ...]

    @classmethod
    def of(cls, names: str | Sequence[str] = "paper", *, kind: str = "classification") -> "Space":
        """Returns the space that a user has named.

        Args:
            names: `paper`, `extended`, or a list of these and of single tokens, which is their union.
            kind: The kind of task. What `extended` has for classes only is left out for regression.

        Returns:
            The space, its tokens in the order of the table.

        Raises:
            InputError: A name is unknown or does not fit the kind, or losses cannot be made of these tokens.

        Example:
            >>> Space.of(["sub", "mul", "y", "f", "1"]).terminals
            ('y', 'f', '1')
            >>> set(Space.of("extended", kind="regression").terminals) - set(PAPER.terminals)
            {'t'}
        """
        given: Any = (names,) if isinstance(names, str) else names
        if not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
            raise InputError(f"space must be a list of names but got {short_repr(names)}")
        chosen: set[str] = set()
        for name in given:
            if name in SPACES:
                chosen.update(token for token in SPACES[name].tokens if _fits(token, kind))
            elif name not in TOKENS:
                raise InputError(
                    f"unknown name in space {short_repr(name)}: {suggestion(name, (*SPACES, *TOKENS), 'names')}"
                )
            elif not _fits(name, kind):
                raise InputError(f"{name} is a terminal of classification and cannot be in the space of a {kind} task")
            else:
                chosen.add(name)
        found = cls(*(tuple(token for token in table if token in chosen) for table in (OPERATORS, TERMINALS)))
        if not (found.binary and TARGET in chosen and found.predictions):
            raise InputError(
                f"a space must have y, one of {', '.join(PREDICTIONS)}, and an operator with two arguments "
                f"but got {', '.join(given)}"
            )
        return found

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.operators + self.terminals

    @property
    def binary(self) -> tuple[str, ...]:
        """The operators with two arguments."""
        return tuple(token for token in self.operators if OPERATORS[token].arity == 2)

    @property
    def predictions(self) -> tuple[str, ...]:
        """The terminals that depend on the model's outputs."""
        return tuple(token for token in self.terminals if token in PREDICTIONS)

    @property
    def terminal_share(self) -> float:
        """The share of terminals among all tokens: how often a branch of a growing tree ends."""
        return len(self.terminals) / (len(self.terminals) + len(self.operators))


EXTENDED = Space(tuple(OPERATORS), TERMINALS)
"""All operators and terminals."""
PAPER = Space(
    tuple(token for token in OPERATORS if token not in ("pow", "exp")),
    tuple(token for token in TERMINALS if token not in EXTRA_TERMINALS),
)
"""The operators and terminals of the paper's Table 1."""
SPACES = {"paper": PAPER, "extended": EXTENDED}


def _fits(token: str, kind: str) -> bool:
    return kind != "regression" or token not in EXTRA_TERMINALS or not EXTRA_TERMINALS[token].is_of_classes


def arity(token: str) -> int:
    """Returns the number of arguments of a known token; a terminal has none."""
    operator = OPERATORS.get(token)
    return operator.arity if operator else 0
