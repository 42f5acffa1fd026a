"""The expression tree: an immutable value in prefix form."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, TypeVar

from evomal.checks import finite_number, whole_number
from evomal.errors import InputError
from evomal.expression import notation, prefix
from evomal.expression.operators import EPSILON, EXTRA_TERMINALS, PREDICTION, PREDICTIONS, TARGET, arity
from evomal.text import plural, short_repr, shorten

Value = TypeVar("Value")

_LONGEST_SHOWN = 200  # characters
_MOST_DIGITS = 17  # those of a double


@dataclass(frozen=True)
class Expression:
    """A symbolic loss, or a part of one: operators over the target `y`, the prediction `f`, `1` and `-1`.

    Further terminals are those of `EXTRA_TERMINALS`: `logp`, `blogp`, `margin`, `prior` and `t`.

    Expressions are immutable, and equal if their trees are equal, so that they can be keys of a dictionary. Every node
    but the root has an edge to its parent. Weights are one number per edge in prefix order, `weights[i - 1]` for node
    `i`.

    Args:
        tokens: The tree in prefix order; `parse` reads it from text.

    Raises:
        InputError: The tokens are not one tree of known operators and terminals, or it is too large.

    Example:
        >>> tree = Expression(["square", "sub", "y", "f"])
        >>> str(tree), tree.size, tree.height
        ('square(sub(y, f))', 4, 2)
    """

    tokens: tuple[str, ...]

    def __init__(self, tokens: Iterable[str]) -> None:
        try:
            object.__setattr__(self, "tokens", tuple(tokens))
            prefix.check(self.tokens)
        except InputError:
            raise
        except (TypeError, ValueError, RuntimeError):  # raised by a number, an array or a tensor
            received = short_repr(tokens)
            raise InputError(f"the tokens of an expression must be a list of strings but got {received}") from None

    @classmethod
    def parse(cls, source: str, *, fragment: bool = False) -> "Expression":
        """Reads an expression from text.

        Args:
            source: Calls of operators, such as `abs(log(mul(y, f)))`.
            fragment: Whether the expression is a part of a loss, and so need not use both y and f.

        Returns:
            The expression.

        Raises:
            InputError: The text is not an expression; the message says at which character.

        Example:
            >>> Expression.parse("abs(sub(y, f))").tokens
            ('abs', 'sub', 'y', 'f')
        """
        expression = cls(notation.read(source))
        return expression if fragment else expression.require_loss()

    def __str__(self) -> str:
        return notation.to_text(self.tokens)

    def __repr__(self) -> str:
        written = str(self)
        if len(written) > _LONGEST_SHOWN:
            return f"<Expression of {self.size} nodes: {written[:_LONGEST_SHOWN]}…>"
        return f"Expression.parse({written!r}{'' if self.is_loss else ', fragment=True'})"

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.tokens)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Depth of every node, the root's being 0."""
        return prefix.depths(self.tokens)

    @property
    def height(self) -> int:
        """Number of edges on the longest path from the root to a leaf."""
        return max(self.depths)

    @property
    def key(self) -> str:
        """Canonical text: equal if and only if the trees are equal."""
        return " ".join(self.tokens)

    @property
    def edges(self) -> int:
        """Number of weights of the meta-loss network: one per node but the root."""
        return self.size - 1

    @property
    def terminals(self) -> tuple[int, ...]:
        """Positions of the leaves."""
        return tuple(position for position, token in enumerate(self.tokens) if arity(token) == 0)

    @property
    def is_loss(self) -> bool:
        """Whether the expression uses both y and f, or another terminal that depends on the model's outputs."""
        return TARGET in self.tokens and any(prediction in self.tokens for prediction in PREDICTIONS)

    @property
    def extras(self) -> tuple[str, ...]:
        """The terminals that the paper does not have, each once, in the order of their table."""
        return tuple(token for token in EXTRA_TERMINALS if token in self.tokens)

    def require_loss(self) -> "Expression":
        """Returns this expression; raises InputError with the missing variable if it is not a loss."""
        if not self.is_loss:
            missing = TARGET if TARGET not in self.tokens else PREDICTION
            raise InputError(f"a loss must use both y and f, but {shorten(str(self), 60)} does not use {missing}")
        return self

    def subtree(self, start: int) -> "Expression":
        """Returns the tree whose root is at this position."""
        start = whole_number("start", start, at_least=0, at_most=self.size - 1)
        return Expression(self.tokens[start : prefix.end_of_subtree(self.tokens, start)])

    def replaced(self, start: int, other: "Expression") -> "Expression":
        """Returns this tree with `other` in place of the subtree at this position."""
        start = whole_number("start", start, at_least=0, at_most=self.size - 1)
        if not isinstance(other, Expression):
            raise InputError(f"other must be an Expression but got {short_repr(other)}")
        return Expression(self.tokens[:start] + other.tokens + self.tokens[prefix.end_of_subtree(self.tokens, start) :])

    def fold(self, visit: Callable[[int, str, Sequence[Value]], Value]) -> Value:
        """Combines values from the leaves to the root by `visit(position, token, values of the arguments)`."""
        return prefix.fold(self.tokens, visit)

    def latex(self, weights: Sequence[float] | None = None, *, digits: int = 4) -> str:
        """Returns LaTeX, with the weights, if given, as factors."""
        return notation.to_latex(self.tokens, self.checked_weights(weights), _checked_digits(digits))

    def sympy(self, weights: Sequence[float] | None = None, *, epsilon: float = EPSILON) -> Any:
        """Returns the simplified SymPy form in y and f; `epsilon=0` drops the protection of log and sqrt."""
        from evomal.expression import symbolic  # SymPy takes long to import

        epsilon = finite_number("epsilon", epsilon, at_least=0.0)
        return symbolic.to_sympy(self.tokens, self.checked_weights(weights), epsilon=epsilon)

    def formula(self, weights: Sequence[float] | None = None, *, digits: int = 4) -> str:
        """Returns a simplified formula as text, in time proportional to the size of the tree.

        Args:
            weights: One number per non-root node in prefix order, or None for all ones.
            digits: Significant digits of the numbers shown.

        Returns:
            The simplified formula, without ε if it makes no difference. A tree of more than 60 nodes or 16 levels, or
            with numbers beyond the range of floats, is not simplified; its weights are written as factors.

        Raises:
            InputError: There is not one weight per non-root node, or `digits` breaks its rule.

        Example:
            >>> Expression.parse("sqrt(square(sub(y, f)))").formula()
            'Abs(f - y)'
        """
        from evomal.expression import symbolic

        checked, digits = self.checked_weights(weights), _checked_digits(digits)
        form = symbolic.shown_form(self.tokens, checked, digits)
        return notation.to_text(self.tokens, checked, digits) if form is None else str(form)

    def checked_weights(self, weights: Sequence[float] | None) -> Sequence[float] | None:
        """Returns the weights; raises InputError unless there is one for every edge."""
        if weights is None:
            return None
        is_list = isinstance(weights, list | tuple) and all(isinstance(weight, Real) for weight in weights)
        if not is_list and getattr(weights, "ndim", None) != 1:  # a vector of NumPy or torch
            raise InputError(f"weights must be a list of numbers but got {short_repr(weights)}")
        if len(weights) != self.edges:
            raise InputError(
                f"an expression of {plural(self.size, 'node')} needs {plural(self.edges, 'weight')}, one per "
                f"non-root node, but got {len(weights)}"
            )
        return weights


def _checked_digits(digits: int) -> int:
    return whole_number("digits", digits, at_least=1, at_most=_MOST_DIGITS)
