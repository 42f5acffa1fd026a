"""The operators and links of forests in Triton: values, derivatives and adjoints of a tile of dual numbers.

EXTENDED: whether the operators that the paper does not have are compiled too.
"""

import triton
import triton.language as tl

from evomal.expression.operators import EPSILON, LARGEST_EXPONENT
from evomal.forest.codes import Link, operator_codes

_EPSILON = tl.constexpr(EPSILON)
_LARGEST = tl.constexpr(LARGEST_EXPONENT)
_ADD, _, _MUL, _AQ, _MIN, _, _POW, _, _SQUARE, _ABS, _LOG, _SQRT, _TANH, _EXP = map(
    tl.constexpr,
    operator_codes(
        "Triton",
        "add", "sub", "mul", "aq", "min", "max", "pow", "sign", "square", "abs", "log", "sqrt", "tanh", "exp",
    ),
)  # fmt: skip
SOFTMAX, SIGMOID = tl.constexpr(int(Link.SOFTMAX)), tl.constexpr(int(Link.SIGMOID))


@triton.jit
def _sign(x):  # type: ignore[no-untyped-def]
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0))


@triton.jit
def tanh(x):  # type: ignore[no-untyped-def]
    """Near zero Cephes' polynomial (Moshier), as 1 − 2 / (exp(2x) + 1) would lose the digits of a small x."""
    z = x * x
    slope = (((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z + 1.33314422036e-1) * z
    near = x + x * z * (slope - 3.33332819422e-1)
    far = 1.0 - 2.0 / (tl.exp(2.0 * tl.abs(x)) + 1.0)
    return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0, -far, far))


@triton.jit
def sigmoid(x):  # type: ignore[no-untyped-def]
    e = tl.exp(-tl.abs(x))
    return tl.where(x < 0, e, 1.0) / (1.0 + e)


@triton.jit
def _log1p(e):  # type: ignore[no-untyped-def]
    """log(1 + e) for 0 ≤ e ≤ 1: Triton has none, and log(1 + e) alone loses the digits of a small e."""
    one_plus = 1.0 + e
    return tl.where(one_plus == 1.0, e, tl.log(one_plus) * (e / tl.where(one_plus == 1.0, 1.0, one_plus - 1.0)))


@triton.jit
def softplus(x):  # type: ignore[no-untyped-def]
    return tl.where(x > 0, x, 0.0) + _log1p(tl.exp(-tl.abs(x)))


@triton.jit  # type: ignore[untyped-decorator]
def activated(value, slope, SOFTPLUS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """A root's value and slope after the activation."""
    if SOFTPLUS:
        slope *= sigmoid(value)
        value = softplus(value)
    return value, slope


@triton.jit  # type: ignore[untyped-decorator]
def predictions(outputs, LINK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """f of a tile of outputs, a sample's in a row."""
    if LINK == SOFTMAX:
        exponentials = tl.exp(outputs - tl.max(outputs, axis=1)[:, None])
        f = exponentials / tl.sum(exponentials, axis=1)[:, None]
    elif LINK == SIGMOID:
        f = sigmoid(outputs)
    else:
        f = outputs
    return f


@triton.jit  # type: ignore[untyped-decorator]
def through_link(f, vectors, LINK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """The link's Jacobian, symmetric for each link, times a vector in every row."""
    if LINK == SOFTMAX:
        product = f * (vectors - tl.sum(f * vectors, axis=1)[:, None])
    elif LINK == SIGMOID:
        product = f * (1.0 - f) * vectors
    else:
        product = vectors
    return product


@triton.jit  # type: ignore[untyped-decorator]
def log_probabilities(z, is_real, LINK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Log-probabilities of a tile of logits, and the probabilities, or for sigmoid those of the other class."""
    if LINK == SOFTMAX:
        shifted = z - tl.max(z, axis=1)[:, None]
        exponentials = tl.exp(shifted)
        total = tl.sum(exponentials, axis=1)[:, None]
        logarithms = shifted - tl.log(total)
        probabilities = exponentials / total
    else:
        e = tl.exp(-tl.abs(z))
        logarithms = tl.where(z < 0, z, 0.0) - _log1p(e)
        probabilities = tl.where(z < 0, 1.0, e) / (1.0 + e)
    return tl.where(is_real, logarithms, 0.0), probabilities


@triton.jit
def rivals(z, column):  # type: ignore[no-untyped-def]
    """Where the first and the second largest logit of every row are."""
    is_first = column == tl.argmax(z, axis=1)[:, None]
    return is_first, column == tl.argmax(tl.where(is_first, float("-inf"), z), axis=1)[:, None]


@triton.jit
def picked(vectors, places):  # type: ignore[no-untyped-def]
    """The one number of every row that stands in these places."""
    return tl.sum(tl.where(places, vectors, 0.0), axis=1)[:, None]


@triton.jit
def _power(a, b):  # type: ignore[no-untyped-def]
    """The value of pow, the protected log|a|, and the two factors of its derivatives: d exp(e)/de and d log|a|/da."""
    size = tl.abs(a)
    logarithm = tl.log(tl.where(size < _EPSILON, _EPSILON, size))
    exponent = b * logarithm
    is_capped = exponent > _LARGEST
    value = tl.exp(tl.where(is_capped, _LARGEST, exponent))
    return value, logarithm, tl.where(is_capped, 0.0, value), tl.where(size < _EPSILON, 0.0, _sign(a) / size)


@triton.jit
def _power_dual(a, da, b, db):  # type: ignore[no-untyped-def]
    value, logarithm, growth, rate = _power(a, b)
    return value, growth * (b * rate * da + logarithm * db)


@triton.jit
def _extremum_dual(code, a, da, b, db):  # type: ignore[no-untyped-def]
    # A NaN is neither smaller nor larger: b wins by default, a where it is the NaN.
    wins = tl.where(code == _MIN, a < b, a > b) | (a != a)
    return tl.where(wins, a, b), tl.where(wins, da, tl.where(a == b, 0.5 * (da + db), db))


@triton.jit
def _power_adjoints(a, da, b, db, adjoint, tangent_adjoint):  # type: ignore[no-untyped-def]
    _, logarithm, growth, rate = _power(a, b)
    # With e = b·log|a|, whose derivatives are e_a = b·rate, e_aa = −b·rate², e_ab = rate, e_b = log|a|.
    e_a = b * rate
    along = e_a * da + logarithm * db
    a_slope = growth * e_a
    b_slope = growth * logarithm
    a_bend = growth * (e_a * along + rate * (db - e_a * da))
    b_bend = growth * (logarithm * along + rate * da)
    return (
        a_slope * adjoint + a_bend * tangent_adjoint,
        a_slope * tangent_adjoint,
        b_slope * adjoint + b_bend * tangent_adjoint,
        b_slope * tangent_adjoint,
    )


@triton.jit
def _extremum_adjoints(code, a, b, adjoint, tangent_adjoint):  # type: ignore[no-untyped-def]
    wins = tl.where(code == _MIN, a < b, a > b) | (a != a)
    share = tl.where(wins, 1.0, tl.where(a == b, 0.5, 0.0))
    return share * adjoint, share * tangent_adjoint, (1.0 - share) * adjoint, (1.0 - share) * tangent_adjoint


@triton.jit  # type: ignore[untyped-decorator]
def unary(code, a, da, EXTENDED: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Value and derivative of an operator on one dual number."""
    sign = _sign(a)
    if code == _SQUARE:
        value = a * a
        derivative = 2.0 * a * da
    elif code == _ABS:
        value = tl.abs(a)
        derivative = sign * da
    elif code == _LOG:
        shifted = tl.abs(a) + _EPSILON
        value = tl.log(shifted)
        derivative = sign / shifted * da
    elif code == _SQRT:
        value = tl.sqrt(tl.abs(a) + _EPSILON)
        derivative = 0.5 * sign / value * da
    elif code == _TANH:
        value = tanh(a)
        derivative = (1.0 - value * value) * da
    else:  # sign
        value = sign
        derivative = tl.zeros_like(a)
        if EXTENDED:  # noqa: SIM102 (a condition of the compiler, then one of the kernel)
            if code == _EXP:
                value = tl.exp(tl.where(a > _LARGEST, _LARGEST, a))
                derivative = tl.where(a > _LARGEST, 0.0, value) * da
    return value, derivative


@triton.jit  # type: ignore[untyped-decorator]
def binary(code, a, da, b, db, EXTENDED: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Value and derivative of an operator on two dual numbers."""
    if code < _MUL:  # add or sub
        direction = tl.where(code == _ADD, 1.0, -1.0)
        value = a + direction * b
        derivative = da + direction * db
    elif code == _MUL:
        value = a * b
        derivative = da * b + a * db
    elif code == _AQ:
        q = 1.0 / tl.sqrt(1.0 + b * b)
        value = a * q
        derivative = da * q - value * b * q * q * db
    elif EXTENDED:
        if code == _POW:
            value, derivative = _power_dual(a, da, b, db)
        else:
            value, derivative = _extremum_dual(code, a, da, b, db)
    else:
        value, derivative = _extremum_dual(code, a, da, b, db)
    return value, derivative


@triton.jit  # type: ignore[untyped-decorator]
def unary_adjoints(  # type: ignore[no-untyped-def]
    code, a, da, value, adjoint, tangent_adjoint, EXTENDED: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Adjoints of the argument and of its tangent from those of the operator, whose value is given."""
    sign = _sign(a)
    if code == _SQUARE:
        slope = 2.0 * a
        bend = 2.0 * da
    elif code == _ABS:
        slope = sign
        bend = tl.zeros_like(a)
    elif code == _LOG:
        slope = sign / (tl.abs(a) + _EPSILON)
        bend = -slope * slope * da
    elif code == _SQRT:
        slope = 0.5 * sign / value
        bend = -slope * slope / value * da
    elif code == _TANH:
        slope = 1.0 - value * value
        bend = -2.0 * value * slope * da
    else:  # sign
        slope = tl.zeros_like(a)
        bend = tl.zeros_like(a)
        if EXTENDED:  # noqa: SIM102 (a condition of the compiler, then one of the kernel)
            if code == _EXP:
                slope = tl.where(a > _LARGEST, 0.0, value)
                bend = slope * da
    return slope * adjoint + bend * tangent_adjoint, slope * tangent_adjoint


@triton.jit  # type: ignore[untyped-decorator]
def binary_adjoints(  # type: ignore[no-untyped-def]
    code, a, da, b, db, adjoint, tangent_adjoint, EXTENDED: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Adjoints of the first argument and its tangent, then of the second, from those of the operator."""
    if code < _MUL:  # add or sub
        direction = tl.where(code == _ADD, 1.0, -1.0)
        a_adjoint = adjoint
        da_adjoint = tangent_adjoint
        b_adjoint = direction * adjoint
        db_adjoint = direction * tangent_adjoint
    elif code == _MUL:
        a_adjoint = b * adjoint + db * tangent_adjoint
        da_adjoint = b * tangent_adjoint
        b_adjoint = a * adjoint + da * tangent_adjoint
        db_adjoint = a * tangent_adjoint
    elif code == _AQ:
        q = 1.0 / tl.sqrt(1.0 + b * b)
        fall = -b * q * q * q  # ∂²/∂a∂b, and ∂/∂b for a = 1
        bend = a * (2.0 * b * b - 1.0) * q * q * q * q * q  # ∂²/∂b²
        a_adjoint = q * adjoint + fall * db * tangent_adjoint
        da_adjoint = q * tangent_adjoint
        b_adjoint = a * fall * adjoint + (fall * da + bend * db) * tangent_adjoint
        db_adjoint = a * fall * tangent_adjoint
    elif EXTENDED:
        if code == _POW:
            a_adjoint, da_adjoint, b_adjoint, db_adjoint = _power_adjoints(a, da, b, db, adjoint, tangent_adjoint)
        else:
            a_adjoint, da_adjoint, b_adjoint, db_adjoint = _extremum_adjoints(code, a, b, adjoint, tangent_adjoint)
    else:
        a_adjoint, da_adjoint, b_adjoint, db_adjoint = _extremum_adjoints(code, a, b, adjoint, tangent_adjoint)
    return a_adjoint, da_adjoint, b_adjoint, db_adjoint
