"""Formulas as text and as MathML."""

import re

from evomal.losses import ExpressionLoss, FocalLoss, NeuralLoss, TaylorLoss
from evomal.report.formulas import formula_text, mathml, symbols_of

LOSS = ExpressionLoss("abs(log(mul(y, f)))", [2.0, 1.0, 1.0, 1.1])


def letters_of(typeset):
    return re.sub(r"<[^>]*>|&InvisibleTimes;|&#8290;", "", typeset)


def test_a_formula_is_the_same_as_text_and_typeset():
    text = formula_text(LOSS)
    assert text == "2*Abs(log(1.1*Abs(f*y)))"
    written = mathml(LOSS, text)
    assert written.startswith('<math display="block">')
    assert written.endswith("</math>")
    assert letters_of(written) == "2|log(1.1|fy|)|"


def test_a_minus_is_a_minus_and_no_hyphen():
    loss = ExpressionLoss("square(sub(f, y))", kind="regression")
    assert "<mo>−</mo>" in mathml(loss, formula_text(loss))
    assert "<mo>-</mo>" not in mathml(loss, formula_text(loss))


def test_softplus_is_written_out():
    loss = ExpressionLoss("mul(y, f)", activation="softplus")
    assert formula_text(loss) == "softplus(f*y)"
    assert letters_of(mathml(loss, formula_text(loss))) == "log(&ExponentialE;fy+1)"


def test_what_is_too_long_or_has_no_formula_is_not_typeset():
    text = formula_text(LOSS)
    assert mathml(LOSS, text, longest=len(text)) is not None
    assert mathml(LOSS, text, longest=len(text) - 1) is None
    network = NeuralLoss([[[1.0, 1.0]], [[1.0]], [[1.0]]])
    assert formula_text(network) == "softplus(W3·relu(W2·relu(W1·(f, y))))"
    assert mathml(network, formula_text(network)) is None


def test_a_formula_that_needs_its_epsilon_is_typeset_with_its_number():
    loss = ExpressionLoss("mul(log(sub(1, 1)), sub(f, y))")  # log(0 + ε)
    assert formula_text(loss) == "16.12*(-f + y)"
    assert "16.12" in mathml(loss, formula_text(loss))


def test_polynomials_and_hand_made_losses_have_formulas_too():
    polynomial = TaylorLoss((0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    assert mathml(polynomial, formula_text(polynomial)) is not None
    assert formula_text(FocalLoss()) == "-(1-p)^g log p"
    assert mathml(FocalLoss(), formula_text(FocalLoss())) is not None
    assert symbols_of(FocalLoss()) == "p: probability of the target, C: number of classes"
    assert symbols_of(ExpressionLoss("mul(y, f)", kind="regression")) == "f: output, y: target"
