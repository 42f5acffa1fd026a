"""A loss of fixed form: proposed once, or tuned on from where it was."""

from evomal.methods.strategy import FixedForm
from tests.methods.outcomes import DIVERGED, evaluated, tell


def test_each_generation_begins_with_the_weights_of_the_last():
    strategy = FixedForm("network", generations=2)
    (first,) = strategy.ask()
    assert (first.genome, first.origin, first.weights) == ("network", "given", ())
    tell(strategy, [evaluated(0.5, weights=(1.0, 2.0))])
    (second,) = strategy.ask()
    assert (second.genome, second.origin, second.weights) == ("network", "continued", (1.0, 2.0))
    assert not strategy.finished
    tell(strategy, [evaluated(0.4, weights=(1.5, 2.0))])
    assert strategy.finished
    assert strategy.ending == "all 2 generations are done"


def test_what_failed_is_not_tried_again():
    strategy = FixedForm("network", generations=5)
    strategy.ask()
    tell(strategy, [DIVERGED])
    assert strategy.finished
    assert strategy.ending == "generation 1 has no fitness, and any after it would have none"


def test_once_is_enough_for_what_is_not_tuned():
    strategy = FixedForm("ce")
    (proposal,) = strategy.ask()
    assert proposal.genome == "ce"
    tell(strategy, [evaluated(0.5)])
    assert strategy.finished
    assert strategy.ending == "the one generation is done"
