"""Rungs: who is trained on which, at which learning rates, and what a candidate's fitness is."""

import math
from dataclasses import replace

import pytest

from evomal.engine import Engine, EngineSettings, Rung
from evomal.expression import Expression
from evomal.expression.variation import scaled
from evomal.losses import ExpressionLoss
from evomal.losses.catalogue import specified_loss
from evomal.losses.loss import WeightedTree
from evomal.methods.candidates import Candidate, State, comparable, front_of, trained
from evomal.methods.filters import most_different
from evomal.methods.rungs import Ladder, spaced_rates
from evomal.settings import SearchSettings
from tests.engine.populations import classification, regression

LADDER = SearchSettings(tried_rates=3, rungs=(0.25, 1.0), rung_seeds=(1, 2), training_steps=40, resplit=True)


def candidate(index, fitness, rungs=(), **others):
    state = State.EVALUATED if math.isfinite(fitness) else State.DIVERGED
    return Candidate(
        genome="abs(sub(y, f))", origin="initial", index=index, fitness=fitness, rungs=rungs, state=state, **others
    )


def test_without_rates_there_are_no_rungs():
    assert Ladder.of(SearchSettings(), seed=0, is_exchangeable=True) is None


def test_every_rung_has_fresh_seeds_and_splits_where_rows_are_exchangeable():
    ladder = Ladder.of(LADDER, seed=1, is_exchangeable=True)
    assert [rung.steps for rung in ladder.rungs] == [10, 40]
    assert [len(rung.seeds) for rung in ladder.rungs] == [1, 2]
    seeds = [seed for rung in ladder.rungs for seed in (*rung.seeds, *rung.splits)]
    assert len(set(seeds)) == 6
    assert min(seeds) >= 10_000
    other = Ladder.of(LADDER, seed=2, is_exchangeable=False)
    assert all(rung.splits == () for rung in other.rungs)
    assert not set(seeds) & {seed for rung in other.rungs for seed in rung.seeds}


def test_further_rungs_try_the_best_learning_rate_and_the_next_lower_one():
    ladder = Ladder.of(LADDER, seed=1, is_exchangeable=False)
    assert ladder.rates_of(0) == (0.3162, 1.0, 3.162)
    assert replace(ladder, centre=31.62).rates_of(0) == (10.0, 31.62, 100.0)
    assert ladder.rates_of(1, candidate(0, 1.0, ((3.162, 1.0),))) == (1.0, 3.162)
    assert spaced_rates(1) == (1.0,)
    assert ladder.steps(9) == 9 * 3 * 10 + 3 * 2 * 2 * 40
    assert ladder.final_rates(1.0) == (0.1, 0.3162, 1.0, 3.162)


def test_a_single_learning_rate_stays_the_only_one():
    ladder = Ladder.of(LADDER.model_copy(update={"tried_rates": 1}), seed=1, is_exchangeable=False)
    assert (
        ladder.rates_of(0) == ladder.rates_of(1, candidate(0, 1.0, ((1.0, 1.0),))) == ladder.final_rates(1.0) == (1.0,)
    )


def test_who_reached_a_longer_rung_ranks_first():
    long, short, lost = (
        candidate(0, 0.9, ((1.0, 0.1), (1.0, 0.9))),
        candidate(1, 0.2, ((1.0, 0.2),)),
        candidate(2, math.inf),
    )
    assert [one.index for one in trained([short, lost, long])] == [0, 1]
    assert comparable([short, lost, long]) == [1.0, math.inf, 0.0]
    assert [one.index for one in front_of([short, long])] == [0]
    plain = [candidate(0, 0.5), candidate(1, math.inf), candidate(2, 0.25)]
    assert comparable(plain) == [0.5, math.inf, 0.25]


def test_the_share_that_goes_on_is_the_best():
    ladder = Ladder.of(LADDER, seed=1, is_exchangeable=False)
    found = ladder.chosen([candidate(index, cost, ((1.0, cost),)) for index, cost in enumerate((0.4, 0.1, 0.3, 0.2))])
    assert [one.index for one in found] == [1, 3]


@pytest.mark.parametrize("task", [regression, classification])
def test_a_multiple_of_a_loss_is_the_same_loss(task):
    """With the learning rate taken out, c times a loss comes out equal for c = 0.1, 1 and 10."""
    engine = Engine(task(), seed=0, settings=EngineSettings(device="cpu", meta_steps=1, training_steps=40))
    text = "square(sub(y, f))" if task is regression else "mul(-1, mul(y, log(f)))"
    tree = Expression.parse(text)
    losses = [WeightedTree(*scaled(tree, [1.0] * tree.edges, factor)) for factor in (0.1, 1.0, 10.0)]
    rung = Rung(40, (3, 4))
    found = engine.try_rates(losses, [rung] * 3, [spaced_rates(3)] * 3)
    assert [one.factor for one in found] == pytest.approx([10.0, 1.0, 0.1], rel=1e-4)
    assert [one.rate for one in found] == [found[1].rate] * 3
    assert [one.cost for one in found] == pytest.approx([found[1].cost] * 3, rel=1e-3)


def test_a_candidate_begins_as_the_reference_does():
    """Scaled to a known loss, that loss written as an expression trains as the loss itself, at its learning rate."""
    engine = Engine(regression(), seed=0, settings=EngineSettings(device="cpu", meta_steps=1, training_steps=40))
    tree, known = Expression.parse("abs(sub(y, f))"), specified_loss("mae", kind="regression")
    tenth = WeightedTree(*scaled(tree, [1.0] * tree.edges, 0.1))
    rungs = [Rung(40, (3, 4), reference=name) for name in ("mae", "", None)]
    matched, baseline, unscaled = (engine.try_rates([tenth], [rung], [(3.162,)])[0] for rung in rungs)
    (plain,) = engine.try_rates([known], [rungs[0]], [(3.162,)])
    assert matched.factor == pytest.approx(10.0, rel=1e-4)
    assert matched.cost == pytest.approx(plain.cost, rel=1e-3)
    assert unscaled.factor == 1.0
    assert baseline.factor not in (pytest.approx(10.0, rel=1e-2), 1.0)


@pytest.mark.parametrize("text", ["square(sub(y, f))", "add(abs(y), f)", "mul(y, f)", "aq(f, y)", "min(y, f)"])
def test_a_scaled_expression_is_a_multiple(text):
    import torch

    tree = Expression.parse(text)
    weights = [0.5 + index / 4 for index in range(tree.edges)]
    outputs, targets = torch.randn(20, 1, dtype=torch.float64), torch.randn(20, 1, dtype=torch.float64)
    own = ExpressionLoss(tree, weights=weights, kind="regression")(outputs, targets)
    other, changed = scaled(tree, weights, 2.5)
    multiple = ExpressionLoss(other, weights=changed, kind="regression")(outputs, targets)
    assert float(multiple) == pytest.approx(2.5 * float(own), rel=1e-6)


def test_the_most_different_are_chosen():
    profiles = [[1.0, 1.0], [1.1, 1.0], [100.0, 1.0], [1.0, 90.0], [99.0, 1.0]]
    assert most_different(profiles, 3) == [0, 2, 3]
    assert sorted(most_different(profiles, 9)) == [0, 1, 2, 3, 4]
    assert most_different([[math.nan, math.inf], [0.0, 0.0]], 2) == [0, 1]
