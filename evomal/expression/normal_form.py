"""Trees as normal forms: constant + Σ coefficient · Π base^exponent, simplified while they are built.

Every rule is an identity over the real numbers and none copies a subexpression, so a form is at most as large as its
tree and the work is bounded by size times height. A general computer algebra system has no such bound: SymPy takes
minutes for some trees of fifteen nodes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from evomal.expression.operators import (
    CONSTANTS,
    EPSILON,
    EXTRA_TERMINALS,
    LARGEST_EXPONENT,
    PREDICTION,
    PRIOR,
    PROGRESS,
    TARGET,
)
from evomal.expression.prefix import Tokens, fold

_HALF = Fraction(1, 2)
_LARGEST_TWICE = 16  # twice the largest exponent that is written as a product of powers
# For smaller arguments of log and sqrt, ε = 1e-7 cannot be left out: the formula would show another function.
_LARGE_BESIDE_EPSILON = 1e-4


class OutOfRangeError(ArithmeticError):
    """A number of the form is too large or too small for a float."""


class UndefinedLimitError(ArithmeticError):
    """Without ε the tree has a logarithm of zero, or of something as small as ε."""


@dataclass(frozen=True)
class Atom:
    """A variable, or an operator over forms that no rule resolves."""

    name: str
    arguments: tuple["Form", ...] = ()


Monomial: TypeAlias = "frozenset[tuple[Atom | Form, Fraction]]"
"""A product of powers: pairs of base and exponent, where a base is an `Atom`, or a `Form` that is a sum."""


@dataclass(frozen=True)
class Form:
    """A constant and monomials with their coefficients."""

    constant: float
    terms: frozenset[tuple[Monomial, float]] = frozenset()

    @property
    def is_number(self) -> bool:
        """Whether no variable is left."""
        return not self.terms

    def factors(self) -> tuple[float, Monomial]:
        """The form as one product: a sum's common factors are taken out, the rest is a base of its own."""
        if self.is_number:
            return self.constant, frozenset()
        if self.constant == 0 and len(self.terms) == 1:
            ((monomial, coefficient),) = self.terms
            return coefficient, monomial
        common = _common_powers([monomial for monomial, _ in self.terms]) if self.constant == 0 else frozenset()
        if not common:
            numbers = {abs(coefficient) for _, coefficient in self.terms} | ({abs(self.constant)} - {0.0})
            scale = numbers.pop() if len(numbers) == 1 else 1.0
            if self.constant <= 0 and all(coefficient < 0 for _, coefficient in self.terms):
                scale = -scale
            base = self if scale == 1 else _scaled(self, 1 / scale)
            return scale, frozenset({(base, Fraction(1))})
        inverse = frozenset((base, -exponent) for base, exponent in common)
        rest = Form(0.0)
        for monomial, coefficient in self.terms:
            factor, left = _merged(monomial, inverse)
            rest = _add(rest, _of_factors(coefficient * factor, left))
        value, inner = rest.factors()
        factor, monomial = _merged(common, inner)
        return value * factor, monomial


def normal_form(tokens: Tokens, weights: Sequence[float] | None = None, *, epsilon: float = EPSILON) -> Form:
    """The normal form of a tree, with each edge's weight as a factor when weights are given.

    `epsilon` protects log and sqrt; 0 gives the limit without protection, or UndefinedLimitError, and leaves out the
    bounds of exp and pow, which only matter for numbers larger than a loss ever has. An operator without a rule stays
    as it is.
    """
    rules: dict[str, Callable[..., Form]] = {
        "add": _add,
        "sub": lambda a, b: _add(a, _scaled(b, -1.0)),
        "mul": _multiplied,
        "aq": lambda a, b: _multiplied(a, _power(_add(Form(1.0), _power(b, Fraction(2))), -_HALF)),
        "min": lambda a, b: _extremum("min", min, a, b),
        "max": lambda a, b: _extremum("max", max, a, b),
        "sign": _sign,
        "square": lambda a: _power(a, Fraction(2)),
        "abs": _absolute,
        "log": lambda a: _logarithm(_protected(a, epsilon)),
        "sqrt": lambda a: _power(_protected(a, epsilon), _HALF),
        "tanh": _tanh,
        "exp": lambda a: _exponential(a, is_limited=epsilon != 0),
        "pow": lambda a, b: _limited_power(a, b) if epsilon != 0 or (a.is_number and b.is_number) else _any_power(a, b),
    }
    leaves = {name: _of_atom(Atom(name)) for name in (TARGET, PREDICTION, *EXTRA_TERMINALS)}
    leaves |= {token: Form(value) for token, value in CONSTANTS.items()}

    def visit(position: int, token: str, arguments: Sequence[Form]) -> Form:
        if token in rules:
            value = rules[token](*arguments)
        else:
            value = _of_atom(Atom(token, tuple(arguments))) if arguments else leaves[token]
        return value if weights is None or position == 0 else _scaled(value, float(weights[position - 1]))

    return fold(tokens, visit)


def _checked(number: float, *sources: float) -> float:
    """The number; raises OutOfRangeError if it overflowed, or is zero although none of its sources is."""
    if not math.isfinite(number) or (number == 0 and sources and all(sources)):
        raise OutOfRangeError
    return number


def _raised(number: float, exponent: Fraction) -> float:
    try:
        return _checked(number ** float(exponent), number)
    except OverflowError:
        raise OutOfRangeError from None


def _form(constant: float, terms: Mapping[Monomial, float]) -> Form:
    return Form(constant, frozenset((monomial, value) for monomial, value in terms.items() if value))


def _of_atom(atom: Atom) -> Form:
    return Form(0.0, frozenset({(frozenset({(atom, Fraction(1))}), 1.0)}))


def _of_factors(coefficient: float, monomial: Monomial) -> Form:
    """A product as a form; a sum that stands alone is opened, so that further terms can join it."""
    if len(monomial) == 1:
        ((base, exponent),) = monomial
        if exponent == 1 and isinstance(base, Form):
            return _scaled(base, coefficient)
    return _form(0.0, {monomial: coefficient}) if monomial else Form(coefficient)


def _add(a: Form, b: Form) -> Form:
    terms = dict(a.terms)
    for monomial, coefficient in b.terms:
        terms[monomial] = _checked(terms.get(monomial, 0.0) + coefficient)
    return _form(_checked(a.constant + b.constant), terms)


def _scaled(form: Form, factor: float) -> Form:
    if factor == 0:
        return Form(0.0)
    terms = {monomial: _checked(factor * value, factor, value) for monomial, value in form.terms}
    return _form(_checked(factor * form.constant, factor, form.constant), terms)


def _multiplied(a: Form, b: Form) -> Form:
    if a.is_number or b.is_number:
        return _scaled(b, a.constant) if a.is_number else _scaled(a, b.constant)
    (first, left), (second, right) = a.factors(), b.factors()
    sign, monomial = _merged(left, right)
    return _of_factors(_checked(sign * first * second, first, second), monomial)


def _merged(left: Monomial, right: Monomial) -> tuple[float, Monomial]:
    """The product of two monomials: a coefficient, and equal bases once."""
    exponents = dict(left)
    for base, exponent in right:
        exponents[base] = exponents.get(base, Fraction(0)) + exponent
    result = frozenset((base, exponent) for base, exponent in exponents.items() if exponent)
    for base, exponent in result:
        if isinstance(base, Atom) and base.name == "abs" and exponent >= 2:
            # |a|³ = |a|·a². The factors of a may stand in the product already, so they are merged into it.
            even = exponent // 2 * 2
            odd_part = frozenset({(base, exponent - even)} if exponent > even else ())
            coefficient, inner = _power(base.arguments[0], Fraction(even)).factors()
            factor, merged = _merged((result - {(base, exponent)}) | odd_part, inner)
            return coefficient * factor, merged
    return 1.0, result


def _common_powers(monomials: Sequence[Monomial]) -> Monomial:
    """The greatest common factor: every base that all monomials have, with its smallest exponent."""
    first, *others = (dict(monomial) for monomial in monomials)
    least = {
        base: min(exponent, *(other.get(base, Fraction(0)) for other in others)) for base, exponent in first.items()
    }
    return frozenset((base, exponent) for base, exponent in least.items() if exponent > 0)


def _power(form: Form, exponent: Fraction) -> Form:
    """The form to the power of 2, or of any other exponent if the form is known not to be negative."""
    if form.is_number:
        return Form(_raised(form.constant, exponent))
    coefficient, monomial = form.factors()
    result: Monomial = frozenset()
    value = _raised(abs(coefficient), exponent)
    for base, inner in monomial:
        base = _leading_positive(base) if isinstance(base, Form) and _is_even(inner * exponent) else base
        if exponent.denominator == 2 and not _is_nonnegative_base(base):  # an even power, as the form is not negative
            base = _absolute_base(base)
        factor, result = _merged(result, frozenset({(base, inner * exponent)}))
        value = _checked(value * factor, factor)
    return _of_factors(value, result)


def _absolute_base(base: Atom | Form) -> Atom:
    return Atom("abs", (_leading_positive(base) if isinstance(base, Form) else _of_atom(base),))


def _absolute(form: Form) -> Form:
    if form.is_number:
        return Form(abs(form.constant))
    if _is_nonnegative(form):
        return form
    if _is_nonnegative(negative := _scaled(form, -1.0)):
        return negative
    coefficient, monomial = form.factors()
    signed = frozenset(
        (base, exponent) for base, exponent in monomial if not (_is_even(exponent) or _is_nonnegative_base(base))
    )
    absolute: Monomial = frozenset()
    if len(signed) == 1:
        ((base, exponent),) = signed
        absolute = frozenset({(_absolute_base(base), exponent)})
    elif signed:
        absolute = frozenset({(Atom("abs", (_of_factors(1.0, signed),)), Fraction(1))})
    factor, result = _merged(monomial - signed, absolute)
    return _of_factors(_checked(abs(coefficient) * factor, coefficient, factor), result)


def _protected(form: Form, epsilon: float) -> Form:
    """|a| + ε. Without ε, |a| must have a number that is much larger than it; else UndefinedLimitError."""
    size = _absolute(form)
    if epsilon == 0 and max([abs(size.constant), *(abs(value) for _, value in size.terms)]) < _LARGE_BESIDE_EPSILON:
        raise UndefinedLimitError
    return _add(size, Form(epsilon))


def _logarithm(form: Form) -> Form:
    """The logarithm of a form that is not negative; log(a^e) is e·log|a|."""
    coefficient, monomial = form.factors()
    if coefficient == 0:
        raise UndefinedLimitError
    if not monomial:
        return Form(math.log(coefficient))
    if coefficient == 1 and len(monomial) == 1:
        ((base, exponent),) = monomial
        if exponent != 1:
            inner = base if _is_nonnegative_base(base) else _absolute_base(base)
            argument = inner if isinstance(inner, Form) else _of_atom(inner)
            return _scaled(_of_atom(Atom("log", (argument,))), float(exponent))
    return _of_atom(Atom("log", (form,)))


def _tanh(form: Form) -> Form:
    if form.is_number:
        return Form(math.tanh(form.constant))
    sign = 1.0 if form.factors()[0] > 0 else -1.0  # tanh is odd
    return _scaled(_of_atom(Atom("tanh", (_scaled(form, sign),))), sign)


def _exponential(form: Form, *, is_limited: bool) -> Form:
    if form.is_number:
        return Form(math.exp(min(form.constant, LARGEST_EXPONENT)))
    limited = _extremum("min", min, form, Form(LARGEST_EXPONENT)) if is_limited else form
    return _of_atom(Atom("exp", (limited,)))


def _limited_power(form: Form, exponent: Form) -> Form:
    """pow as the operator table defines it."""
    size = _extremum("max", max, _absolute(form), Form(EPSILON))
    return _exponential(_multiplied(exponent, _logarithm(size)), is_limited=True)


def _any_power(form: Form, exponent: Form) -> Form:
    """|a|^b; a product of powers if b is a small whole number or half of one."""
    size = _absolute(form)
    if exponent.is_number:
        twice = 2 * exponent.constant
        if twice == 0:
            return Form(1.0)
        if twice.is_integer() and abs(twice) <= _LARGEST_TWICE and not size.is_number:
            return _power(size, Fraction(int(twice), 2))
    return _of_atom(Atom("pow", (size, exponent)))


def _sign(form: Form) -> Form:
    coefficient, monomial = form.factors()
    sign = math.copysign(1.0, coefficient) if coefficient else 0.0
    rest = frozenset((base, exponent) for base, exponent in monomial if not _is_positive_base(base))
    return _scaled(_of_atom(Atom("sign", (_of_factors(1.0, rest),))), sign) if rest else Form(sign)


def _extremum(name: str, choose: Callable[..., float], a: Form, b: Form) -> Form:
    """min or max of two forms: nested calls are joined, equal arguments kept once, numbers replaced by one of them."""
    numbers: list[float] = []
    others: dict[Form, None] = {}
    for form in (a, b):
        for argument in _arguments_of(name, form):
            if argument.is_number:
                numbers.append(argument.constant)
            else:
                others[argument] = None
    arguments = [*([Form(choose(numbers))] if numbers else []), *others]
    return arguments[0] if len(arguments) == 1 else _of_atom(Atom(name, tuple(arguments)))


def _arguments_of(name: str, form: Form) -> tuple[Form, ...]:
    if form.constant == 0 and len(form.terms) == 1:
        ((monomial, coefficient),) = form.terms
        if coefficient == 1 and len(monomial) == 1:
            ((base, exponent),) = monomial
            if isinstance(base, Atom) and base.name == name and exponent == 1:
                return base.arguments
    return (form,)


def _is_even(exponent: Fraction) -> bool:
    return exponent.denominator == 1 and exponent % 2 == 0


def _leading_positive(form: Form) -> Form:
    """The form or its negative: the one whose first term in alphabetical order has a positive coefficient."""
    _, leading = min((_key(monomial), value) for monomial, value in form.terms)
    return form if leading > 0 else _scaled(form, -1.0)


def _key(monomial: Monomial) -> tuple[str, ...]:
    return tuple(sorted(f"{_written(base)}^{exponent}" for base, exponent in monomial))


def _written(base: Atom | Form) -> str:
    if isinstance(base, Atom):
        return f"{base.name}({', '.join(map(_written, base.arguments))})" if base.arguments else base.name
    return " + ".join([str(base.constant), *sorted(f"{value} {_key(monomial)}" for monomial, value in base.terms)])


def _is_nonnegative(form: Form) -> bool:
    return form.constant >= 0 and all(
        value > 0 and all(_is_even(exponent) or _is_nonnegative_base(base) for base, exponent in monomial)
        for monomial, value in form.terms
    )


def _is_nonnegative_base(base: Atom | Form) -> bool:
    if isinstance(base, Form):
        return _is_nonnegative(base)
    if base.name in ("tanh", "sign", "min"):
        return all(_is_nonnegative(argument) for argument in base.arguments)
    if base.name == "max":
        return any(_is_nonnegative(argument) for argument in base.arguments)
    return base.name in ("abs", "exp", "pow", PRIOR, PROGRESS)


def _is_positive_base(base: Atom | Form) -> bool:
    if isinstance(base, Atom):
        return base.name in ("exp", PRIOR)
    return base.constant > 0 and _is_nonnegative(base)
