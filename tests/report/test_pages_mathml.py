"""Formulas as text and as MathML."""

import re

from evomal.losses import ExpressionLoss, FocalLoss, NeuralLoss, TaylorLoss
from evomal.report.pages import mathml

LOSS = ExpressionLoss("abs(log(mul(y, f)))", [2.0, 1.0, 1.0, 1.1])


def letters_of(typeset):
    return re.sub(r"<[^>]*>|&InvisibleTimes;|&#8290;", "", typeset)


def test_a_formula_is_the_same_as_text_and_typeset():
    text = LOSS.formula()
    assert text == "2*Abs(log(1.1*Abs(f*y)))"
    written = mathml(LOSS, text)
    assert written.startswith('<math display="block">')
    assert written.endswith("</math>")
    assert letters_of(written) == "2|log(1.1|fy|)|"


def test_a_minus_is_a_minus_and_no_hyphen():
    loss = ExpressionLoss("square(sub(f, y))", kind="regression")
    assert "<mo>−</mo>" in mathml(loss, loss.formula())
    assert "<mo>-</mo>" not in mathml(loss, loss.formula())


def test_softplus_is_written_out():
    loss = ExpressionLoss("mul(y, f)", activation="softplus")
    assert loss.formula() == "softplus(f*y)"
    assert letters_of(mathml(loss, loss.formula())) == "log(&ExponentialE;fy+1)"


def test_what_is_too_long_or_has_no_formula_is_not_typeset():
    text = LOSS.formula()
    assert mathml(LOSS, text, longest=len(text)) is not None
    assert mathml(LOSS, text, longest=len(text) - 1) is None
    network = NeuralLoss([[[1.0, 1.0]], [[1.0]], [[1.0]]])
    assert network.formula() == "softplus(W3·relu(W2·relu(W1·(f, y))))"
    assert mathml(network, network.formula()) is None


def test_a_formula_that_needs_its_epsilon_is_typeset_with_its_number():
    loss = ExpressionLoss("mul(log(sub(1, 1)), sub(f, y))")  # log(0 + ε)
    assert loss.formula() == "16.12*(-f + y)"
    assert "16.12" in mathml(loss, loss.formula())


def test_polynomials_and_hand_made_losses_have_formulas_too():
    polynomial = TaylorLoss((0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    assert mathml(polynomial, polynomial.formula()) is not None
    assert FocalLoss().formula() == "-(1-p)^g log p"
    assert mathml(FocalLoss(), FocalLoss().formula()) is not None
    assert FocalLoss().symbols() == "p: probability of the target, C: number of classes"
    assert ExpressionLoss("mul(y, f)", kind="regression").symbols() == "f: output, y: target"
