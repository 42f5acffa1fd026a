"""A generation's outcomes: order of the filters, what is cached, twins, failures, and replay."""

import math
from dataclasses import replace

import pytest
import torch

from evomal.engine import Engine, EngineSettings
from evomal.expression import Expression
from evomal.methods import FILTERS, Failure, SearchContext
from evomal.methods.candidates import State, proposed
from evomal.methods.filters import FilteringEvaluator, fingerprint
from evomal.methods.genetic import GeneticSearch
from evomal.runs.executors import LocalExecutor
from evomal.settings import PAPER_FILTERS, SearchSettings
from tests.engine.populations import EXPLOSIVE, classification, regression
from tests.methods.outcomes import make

SQUARE = Expression.parse("square(sub(y, f))")
FLIPPED = Expression.parse("square(sub(f, y))")
ABSOLUTE = Expression.parse("abs(sub(y, f))")
DEAD = Expression.parse("sign(sub(y, f))")
WRONG = Expression.parse("mul(-1, square(sub(y, f)))")
SETTINGS = {"device": "cpu", "meta_steps": 3, "training_steps": 10, "filter_steps": 50, "population_mode": "looped"}


def evaluator(*, optimise=True, filters=PAPER_FILTERS, task=None, **settings):
    task = task or regression()
    engine = Engine(task, seed=0, settings=EngineSettings(**SETTINGS))
    context = SearchContext(SearchSettings(filters=tuple(filters), **settings), 0, task.kind)
    return FilteringEvaluator(context, LocalExecutor(engine), optimise=optimise)


def engine_of(subject):
    return subject._executor._engine


def proposals(*expressions):
    return [proposed(expression, "initial") for expression in expressions]


def states(candidates):
    return [candidate.state for candidate in candidates]


def test_each_filter_finds_its_own():
    found = evaluator().evaluate(proposals(SQUARE, DEAD, WRONG, SQUARE, ABSOLUTE, EXPLOSIVE))
    assert states(found)[:5] == [State.EVALUATED, State.DEAD, State.REJECTED, State.CACHED, State.EVALUATED]
    assert states(found)[5] in (State.DIVERGED, State.REJECTED)
    assert found[3].fitness == found[0].fitness
    assert all(candidate.sentence for candidate in found)
    assert len(found[0].weights) == SQUARE.edges
    assert set(found[0].seconds) == {"filter", "optimise", "evaluate"}
    assert "optimise" not in found[1].seconds


def test_equal_gradients_share_a_fitness():
    subject = evaluator(optimise=False)
    first, twin = subject.evaluate(proposals(SQUARE, FLIPPED))
    assert (first.state, twin.state) == (State.EVALUATED, State.EQUIVALENT)
    assert twin.fitness == first.fitness
    assert first.weights == (1.0,) * SQUARE.edges
    later = Expression.parse("square(sub(mul(1, y), f))")
    (found,) = subject.evaluate(proposals(later))
    assert (found.state, found.fitness, len(found.weights)) == (State.EQUIVALENT, first.fitness, later.edges)
    assert subject.archive.best.expression == SQUARE


FLAT = Expression.parse("max(f, square(sub(y, f)))")  # f where the target's probability is high: there no gradient
LEVELS = [FLAT, Expression.parse(f"sub({FLAT}, f)"), Expression.parse(f"sub({FLAT}, 1)")]
RUNGS = {"tried_rates": 2, "rungs": (0.5, 1.0), "rung_seeds": (1, 1), "training_steps": 10}


def test_with_rungs_losses_that_differ_by_rounding_errors_have_equal_gradients():
    # Probabilities sum to one, so that f is a constant, but for the rounding errors where gradients cancel.
    task = classification()
    subject = evaluator(optimise=False, filters=("gradient",), task=task, **RUNGS)
    weights = [[1.0] * tree.edges for tree in LEVELS]
    assert len({fingerprint(profile) for profile in engine_of(subject).profiles(LEVELS, weights)}) > 1
    found = subject.evaluate(proposals(*LEVELS))
    assert states(found) == [State.EVALUATED, State.EQUIVALENT, State.EQUIVALENT]


def test_of_candidates_that_are_nearly_alike_the_first_is_chosen():
    subject = evaluator(optimise=False, **RUNGS)
    smooth = Expression.parse("log(add(1, square(sub(y, f))))")
    first, near, far, last = (
        replace(proposed(tree, "initial"), weights=(scale,) * tree.edges)
        for tree, scale in ((smooth, 1.0), (smooth, 1.01), (ABSOLUTE, 1.0), (SQUARE, 1.0))
    )
    assert subject.first_unlike([first, near, far, last], 2) == [first, far]
    assert subject.first_unlike([first, near, far, last], 3) == [first, far, last]
    assert subject.first_unlike([first, near, far], 3) == [first, near, far]
    assert evaluator(optimise=False).first_unlike([first, near, far], 2) == [first, near]  # without rungs, as given


def test_a_rejection_is_remembered_too():
    subject = evaluator()
    subject.evaluate(proposals(DEAD, WRONG))
    found = subject.evaluate(proposals(WRONG, DEAD))
    assert states(found) == [State.CACHED, State.CACHED]
    assert [candidate.fitness for candidate in found] == [math.inf, math.inf]


@pytest.mark.parametrize("left_out", PAPER_FILTERS)
def test_each_filter_can_be_left_out(left_out):
    subject = evaluator(optimise=False, filters=[name for name in PAPER_FILTERS if name != left_out])
    found = states(subject.evaluate(proposals(SQUARE, DEAD, WRONG, SQUARE, FLIPPED)))
    expected = {
        "symbolic": [State.EVALUATED, State.DEAD, State.REJECTED, State.EQUIVALENT, State.EQUIVALENT],
        "dead": [State.EVALUATED, State.REJECTED, State.REJECTED, State.CACHED, State.EQUIVALENT],
        "rejection": [State.EVALUATED, State.DEAD, State.EQUIVALENT, State.CACHED, State.EQUIVALENT],
        "gradient": [State.EVALUATED, State.DEAD, State.REJECTED, State.CACHED, State.EVALUATED],
    }
    assert found == expected[left_out]


def test_inadmissible_candidates_are_not_tuned():
    subject = evaluator(filters=FILTERS)
    found = subject.evaluate(proposals(SQUARE, WRONG, DEAD, ABSOLUTE, WRONG))
    assert states(found) == [
        State.EVALUATED, State.INADMISSIBLE, State.INADMISSIBLE, State.EVALUATED, State.CACHED,
    ]  # fmt: skip
    assert found[1].sentence == "for targets around -2.3 it is no higher at the output 10000 than near them"
    assert set(found[1].seconds) == {"filter"}
    assert found[4].sentence == f"seen before: {found[1].sentence}"
    (plain,) = evaluator().evaluate(proposals(SQUARE))
    assert plain == found[0]


@pytest.mark.parametrize("optimise", [True, False])
def test_weights_that_optimisation_may_reach_count_only_if_they_are_optimised(optimise, monkeypatch):
    subject = evaluator(optimise=optimise, filters=FILTERS)
    asked = []

    def inadmissible(trees, weights):
        asked.extend(zip(trees, weights, strict=True))
        return ["" if tree == ABSOLUTE and own != list(subject._start(tree)) else "no loss" for tree, own in asked]

    monkeypatch.setattr(engine_of(subject), "inadmissible", inadmissible)
    found = subject.evaluate(proposals(SQUARE, ABSOLUTE))
    assert states(found) == [State.INADMISSIBLE, State.EVALUATED if optimise else State.INADMISSIBLE]
    assert len(asked) == (14 if optimise else 2)
    assert asked[0] == (SQUARE, list(subject._start(SQUARE)))
    assert all(0.2 < weight < 1.8 for _, own in asked for weight in own)
    assert len({tuple(own) for _, own in asked}) == len(asked) if optimise else found[1].weights == (1.0,) * 3


def test_for_elites_nothing_is_computed(monkeypatch):
    subject = evaluator(filters=FILTERS)
    (first,) = subject.evaluate(proposals(SQUARE))
    elite = replace(first, origin="elite", parents=(0,), generation=1)
    for stage in ("inadmissible", "gradient_norms", "optimise", "gains", "evaluate"):
        monkeypatch.setattr(engine_of(subject), stage, lambda *_, **__: pytest.fail("nothing is to be computed"))
    assert subject.evaluate([elite]) == [elite]


def test_an_outcome_does_not_depend_on_company_or_time():
    alone = evaluator().evaluate(proposals(ABSOLUTE))[0]
    subject = evaluator()
    subject.evaluate(proposals(SQUARE, WRONG))
    among = subject.evaluate(proposals(DEAD, WRONG, ABSOLUTE))[2]
    assert alone == among


@pytest.mark.parametrize("stage", ["inadmissible", "gradient_norms", "optimise", "gains", "evaluate"])
def test_a_candidate_that_fails_is_recorded_and_the_others_continue(stage, monkeypatch):
    subject = evaluator(filters=FILTERS if stage == "inadmissible" else PAPER_FILTERS)
    usual = getattr(engine_of(subject), stage)

    def fragile(expressions, weights, **options):
        if ABSOLUTE in expressions:
            raise torch.OutOfMemoryError("no memory\nleft")
        return usual(expressions, weights, **options)

    monkeypatch.setattr(engine_of(subject), stage, fragile)
    found = subject.evaluate(proposals(SQUARE, ABSOLUTE, WRONG))
    wrong = State.INADMISSIBLE if stage == "inadmissible" else State.REJECTED
    assert states(found) == [State.EVALUATED, State.FAILED, wrong]
    assert found[1].sentence.endswith("failed: no memory left")


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ({ABSOLUTE}, [State.EVALUATED, State.FAILED, State.PASSED_OVER]),
        ({SQUARE, ABSOLUTE, FLIPPED}, [State.FAILED] * 3),
    ],
)
def test_candidates_can_fail_where_a_crowded_first_generation_is_thinned(lost, expected, monkeypatch):
    subject = evaluator(optimise=False, filters=(), population=1)
    usual = subject._executor.run

    def fragile(stage, trees, *others, **options):
        results = usual(stage, trees, *others, **options)
        if stage != "profiles":
            return results
        pairs = zip(trees, results, strict=True)
        return [Failure(f"the worker was lost with {tree}") if tree in lost else result for tree, result in pairs]

    monkeypatch.setattr(subject._executor, "run", fragile)
    assert states(subject.evaluate(proposals(SQUARE, ABSOLUTE, FLIPPED))) == expected


@pytest.mark.parametrize("filters", [PAPER_FILTERS, FILTERS])
def test_an_evaluator_with_a_replayed_record_continues_identically(filters):
    def search(subject, generations, record=()):
        strategy = make(GeneticSearch, seed=3, population=6, generations=3)
        told = []
        for generation in range(generations):
            candidates = strategy.ask()
            if generation < len(record):
                candidates = record[generation]
                subject.remember(candidates)
            else:
                candidates = subject.evaluate(candidates)
            strategy.tell(candidates)
            told.append(candidates)
        return told, subject.archive.best

    whole, best = search(evaluator(filters=filters), 3)
    resumed, same = search(evaluator(filters=filters), 3, whole[:2])
    assert resumed == whole
    assert same == best


def test_the_twin_of_one_that_failed_is_trained_itself(monkeypatch):
    subject = evaluator(optimise=False)
    usual = engine_of(subject).evaluate

    def fragile(expressions, weights, **options):
        if SQUARE in expressions:
            raise torch.OutOfMemoryError("no memory left")
        return usual(expressions, weights, **options)

    monkeypatch.setattr(engine_of(subject), "evaluate", fragile)
    failed, twin = subject.evaluate(proposals(SQUARE, FLIPPED))
    assert (failed.state, twin.state) == (State.FAILED, State.EVALUATED)
    assert math.isfinite(twin.fitness)
    assert subject.archive.best.expression == FLIPPED


def test_one_that_leads_outputs_to_infinity_has_diverged():
    subject = evaluator(optimise=False)
    engine_of(subject).gains = lambda *_, **__: [-math.inf]
    (found,) = subject.evaluate(proposals(SQUARE))
    assert (found.state, found.sentence) == (State.DIVERGED, "following it led to outputs that are not finite")
