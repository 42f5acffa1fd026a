"""A generation's outcomes: order of the filters, what is cached, twins, failures, and replay."""

import math

import pytest
import torch

from evomal.engine import Engine, EngineSettings
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.methods import FILTERS, FilteringJudge
from evomal.methods.genetic import GeneticSearch
from evomal.methods.outcomes import State
from evomal.methods.proposals import Proposal
from evomal.runs.executors import LocalExecutor
from tests.engine.populations import EXPLOSIVE, regression

SQUARE = Expression.parse("square(sub(y, f))")
FLIPPED = Expression.parse("square(sub(f, y))")
ABSOLUTE = Expression.parse("abs(sub(y, f))")
DEAD = Expression.parse("sign(sub(y, f))")
WRONG = Expression.parse("mul(-1, square(sub(y, f)))")
SETTINGS = {"device": "cpu", "meta_steps": 3, "training_steps": 10, "filter_steps": 50, "population_mode": "looped"}


def judge(**options):
    engine = Engine(regression(), seed=0, settings=EngineSettings(**SETTINGS))
    return FilteringJudge(LocalExecutor(engine), seed=0, **options)


def engine_of(court):
    return court._executor._engine


def proposals(*expressions):
    return [Proposal(expression, "initial") for expression in expressions]


def states(outcomes):
    return [outcome.state for outcome in outcomes]


def test_each_filter_finds_its_own():
    found = judge().outcomes(proposals(SQUARE, DEAD, WRONG, SQUARE, ABSOLUTE, EXPLOSIVE), generation=0)
    assert states(found)[:5] == [State.EVALUATED, State.DEAD, State.REJECTED, State.CACHED, State.EVALUATED]
    assert states(found)[5] in (State.DIVERGED, State.REJECTED)
    assert found[3].fitness == found[0].fitness
    assert all(outcome.sentence for outcome in found)
    assert len(found[0].weights) == SQUARE.edges
    assert set(found[0].seconds) == {"filter", "optimise", "evaluate"}
    assert "optimise" not in found[1].seconds


def test_equal_gradients_share_a_fitness():
    court = judge(optimised=False)
    first, twin = court.outcomes(proposals(SQUARE, FLIPPED), generation=0)
    assert (first.state, twin.state) == (State.EVALUATED, State.EQUIVALENT)
    assert twin.fitness == first.fitness
    assert first.weights == (1.0,) * SQUARE.edges
    later = Expression.parse("square(sub(mul(1, y), f))")
    (found,) = court.outcomes(proposals(later), generation=1)
    assert (found.state, found.fitness, len(found.weights)) == (State.EQUIVALENT, first.fitness, later.edges)
    assert court.archive.best.expression == SQUARE


def test_a_rejection_is_remembered_too():
    court = judge()
    court.outcomes(proposals(DEAD, WRONG), generation=0)
    found = court.outcomes(proposals(WRONG, DEAD), generation=1)
    assert states(found) == [State.CACHED, State.CACHED]
    assert [outcome.fitness for outcome in found] == [math.inf, math.inf]


@pytest.mark.parametrize("left_out", FILTERS)
def test_each_filter_can_be_left_out(left_out):
    court = judge(optimised=False, filters=[name for name in FILTERS if name != left_out])
    found = states(court.outcomes(proposals(SQUARE, DEAD, WRONG, SQUARE, FLIPPED), generation=0))
    expected = {
        "symbolic": [State.EVALUATED, State.DEAD, State.REJECTED, State.EQUIVALENT, State.EQUIVALENT],
        "dead": [State.EVALUATED, State.REJECTED, State.REJECTED, State.CACHED, State.EQUIVALENT],
        "rejection": [State.EVALUATED, State.DEAD, State.EQUIVALENT, State.CACHED, State.EQUIVALENT],
        "gradient": [State.EVALUATED, State.DEAD, State.REJECTED, State.CACHED, State.EVALUATED],
    }
    assert found == expected[left_out]
    with pytest.raises(InputError, match="filters must be some of symbolic, dead, rejection, gradient but got 'luck'"):
        judge(filters=["luck"])


def test_elites_are_told_again_and_nothing_is_computed(monkeypatch):
    court = judge()
    (outcome,) = court.outcomes(proposals(SQUARE), generation=0)
    elite = Proposal(SQUARE, "elite", (0,), known=outcome)
    for stage in ("gradient_norms", "optimise", "gains", "evaluate"):
        monkeypatch.setattr(engine_of(court), stage, lambda *_, **__: pytest.fail("nothing is to be computed"))
    assert court.outcomes([elite], generation=1) == [outcome]


def test_an_outcome_does_not_depend_on_company_or_time():
    alone = judge().outcomes(proposals(ABSOLUTE), generation=0)[0]
    court = judge()
    court.outcomes(proposals(SQUARE, WRONG), generation=0)
    among = court.outcomes(proposals(DEAD, WRONG, ABSOLUTE), generation=1)[2]
    assert alone == among


@pytest.mark.parametrize("stage", ["gradient_norms", "optimise", "gains", "evaluate"])
def test_one_that_fails_is_recorded_and_the_others_go_on(stage, monkeypatch):
    court = judge()
    usual = getattr(engine_of(court), stage)

    def fragile(expressions, weights, **options):
        if ABSOLUTE in expressions:
            raise torch.OutOfMemoryError("no memory\nleft")
        return usual(expressions, weights, **options)

    monkeypatch.setattr(engine_of(court), stage, fragile)
    found = court.outcomes(proposals(SQUARE, ABSOLUTE, WRONG), generation=0)
    assert states(found) == [State.EVALUATED, State.FAILED, State.REJECTED]
    assert found[1].sentence.endswith("failed: no memory left")


def test_a_remembered_record_goes_on_identically():
    def search(court, generations, record=()):
        strategy = GeneticSearch(seed=3, population=6, generations=3)
        told = []
        for generation in range(generations):
            asked = strategy.ask()
            if generation < len(record):
                outcomes = record[generation]
                court.remember(asked, outcomes, generation=generation)
            else:
                outcomes = court.outcomes(asked, generation=generation)
            strategy.tell(outcomes)
            told.append(outcomes)
        return told, court.archive.best

    whole, best = search(judge(), 3)
    resumed, same = search(judge(), 3, whole[:2])
    assert resumed == whole
    assert same == best


def test_the_twin_of_one_that_failed_is_trained_itself(monkeypatch):
    court = judge(optimised=False)
    usual = engine_of(court).evaluate

    def fragile(expressions, weights, **options):
        if SQUARE in expressions:
            raise torch.OutOfMemoryError("no memory left")
        return usual(expressions, weights, **options)

    monkeypatch.setattr(engine_of(court), "evaluate", fragile)
    failed, twin = court.outcomes(proposals(SQUARE, FLIPPED), generation=0)
    assert (failed.state, twin.state) == (State.FAILED, State.EVALUATED)
    assert math.isfinite(twin.fitness)
    assert court.archive.best.expression == FLIPPED


def test_one_that_leads_outputs_to_infinity_has_diverged():
    court = judge(optimised=False)
    engine_of(court).gains = lambda *_, **__: [-math.inf]
    (found,) = court.outcomes(proposals(SQUARE), generation=0)
    assert (found.state, found.sentence) == (State.DIVERGED, "following it led to outputs that are not finite")
