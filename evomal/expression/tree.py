"""The expression tree: an immutable value in prefix form."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from evomal.errors import InputError
from evomal.expression import notation, prefix, text
from evomal.expression.operators import EPSILON, VARIABLES, arity
from evomal.text import shorten

Value = TypeVar("Value")

_LONGEST_SHOWN = 200  # characters


@dataclass(frozen=True)
class Expression:
    """A symbolic loss, or a part of one: operators over the target `y`, the prediction `f`, `1` and `-1`.

    Equal trees are equal and hash alike, so an expression can be a dictionary's key. Every node but the root has an
    edge to its parent; where weights are given they stand in prefix order, `weights[i - 1]` for node `i`.
    """

    tokens: tuple[str, ...]

    def __init__(self, tokens: Iterable[str]) -> None:
        object.__setattr__(self, "tokens", tuple(tokens))
        prefix.check(self.tokens)

    @classmethod
    def parse(cls, source: str, *, fragment: bool = False) -> "Expression":
        """Read `abs(log(mul(y, f)))`; a loss must use both y and f unless `fragment` says it is only a part."""
        expression = cls(text.read(source))
        return expression if fragment else expression.require_loss()

    def __str__(self) -> str:
        return text.write(self.tokens)

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
        """Edges on the longest way from the root to a leaf; a leaf has height 0."""
        return max(self.depths)

    @property
    def key(self) -> str:
        """Canonical text: equal exactly when the trees are the same operations in the same configuration."""
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
        """Whether both y and f take part."""
        return all(variable in self.tokens for variable in VARIABLES)

    def require_loss(self) -> "Expression":
        """This expression, or an error naming the variable it lacks."""
        for variable in VARIABLES:
            if variable not in self.tokens:
                raise InputError(f"a loss must use both y and f, but {shorten(str(self), 60)} does not use {variable}")
        return self

    def subtree(self, start: int) -> "Expression":
        """The tree whose root stands at this position."""
        return Expression(self.tokens[start : prefix.end_of_subtree(self.tokens, start)])

    def replaced(self, start: int, other: "Expression") -> "Expression":
        """This tree with `other` in place of the subtree at this position."""
        return Expression(self.tokens[:start] + other.tokens + self.tokens[prefix.end_of_subtree(self.tokens, start) :])

    def fold(self, visit: Callable[[int, str, Sequence[Value]], Value]) -> Value:
        """Combine from the leaves to the root: `visit(position, token, values of the arguments)`."""
        return prefix.fold(self.tokens, visit)

    def latex(self, weights: Sequence[float] | None = None, *, digits: int = 4) -> str:
        """LaTeX, with the weights as factors where they are given."""
        return notation.to_latex(self.tokens, self.checked_weights(weights), digits)

    def sympy(self, weights: Sequence[float] | None = None, *, epsilon: float = EPSILON) -> Any:
        """Simplified SymPy form in the real symbols y and f; `epsilon=0` drops the protection of log and sqrt."""
        from evomal.expression import symbolic  # imports SymPy, which is slow

        return symbolic.to_sympy(self.tokens, self.checked_weights(weights), epsilon=epsilon)

    def formula(self, weights: Sequence[float] | None = None, *, digits: int = 4) -> str:
        """Simplified text for people to read, in time proportional to the tree's size.

        Args:
            weights: One number per non-root node in prefix order, or None for all ones.
            digits: Significant digits of the numbers shown.

        Returns:
            The simplified formula, without ε where it makes no difference. A tree of more than 60 nodes or 16 levels,
            or one with numbers beyond the range of floats, is written as it is, its weights as factors.

        Raises:
            InputError: If there is not one weight per non-root node.

        Example:
            >>> Expression.parse("sqrt(square(sub(y, f)))").formula()
            'Abs(f - y)'
        """
        checked = self.checked_weights(weights)
        from evomal.expression import symbolic

        form = symbolic.shown_form(self.tokens, checked, digits)
        return notation.to_text(self.tokens, checked, digits) if form is None else str(form)

    def checked_weights(self, weights: Sequence[float] | None) -> Sequence[float] | None:
        """The weights themselves, or an error unless there is one for every edge."""
        if weights is not None and len(weights) != self.edges:
            raise InputError(
                f"an expression of {self.size} nodes needs {self.edges} weights, one per non-root node, "
                f"but got {len(weights)}"
            )
        return weights
