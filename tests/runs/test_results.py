"""What a search gives back, on one line and in words."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import evomal
from evomal.expression import Expression
from evomal.methods.candidates import State
from evomal.runs import RunStore, find_runs
from evomal.runs.finals import Final
from evomal.runs.generations import Generation
from evomal.runs.leads import Scores
from evomal.runs.results import Best, Recommended, SearchResult, summary_lines
from evomal.runs.run_loop import search
from tests.engine.populations import classification, regression
from tests.figures.records import row
from tests.protocols import ONE_TRAINING

SHORT = {
    **ONE_TRAINING,
    "population": 6, "generations": 2, "meta_steps": 2, "training_steps": 5, "filter_steps": 10, "device": "cpu",
}  # fmt: skip
TREE = Expression.parse("square(sub(y, f))")


def result(final=None, **changes):
    scores = () if final is None else final.winner[1].values
    best = Best(TREE, (1.0, 1.0, 1.0), 0.6492, 0.6492, 3, "regression", "identity", scores=scores)
    return SearchResult(best, (), (), "done", None, 1.0, rivals={"mse": 0.668, "mae": float("inf")}, final=final,
                        metric="mse", **changes)  # fmt: skip


@pytest.mark.parametrize("method", ["evomal", "ml3", "taylorglo"])
def test_everything_is_one_short_line(method, tmp_path):
    found = search(regression(), method=method, seed=1, folder=tmp_path, **SHORT)
    with RunStore.read(tmp_path) as store:
        candidates, chunks = store.candidates(), store.complete_chunks()
    things = [found, found.best, found.final, *found.history, *found.front, *candidates, *chunks, *find_runs(tmp_path)]
    things.append(evomal.train(regression(), "mse", steps=5, device="cpu"))
    for thing in things:
        assert "\n" not in repr(thing)
        assert len(repr(thing)) <= 400, repr(thing)


def test_how_a_result_reads():
    final = Final(((row(3, 0, 0.6492), Scores((0.66, 0.684))),), {"mse": Scores((0.658, 0.678))})
    assert repr(result(final)) == (
        "SearchResult(best=Best('square(sub(y, f))', fitness=0.6492, mean=0.672 of 2, generation=3), "
        "rivals=(mse 0.668, mae inf), no lead over mse, 0 generations)"
    )
    assert repr(row(3, 0, 0.5)) == "Candidate(3:0 'abs(sub(f, y))', evaluated, fitness=0.5)"


def test_a_known_loss_that_is_recommended_has_the_units_and_priors_of_the_task(tmp_path):
    """In a training loop of one's own it would be another loss without them."""
    units, shares = evomal.Units(mean=152.0, scale=77.0), (0.9, 0.1)
    huber = Recommended("huber", 0.1, "regression", units=units).loss()
    output, target = torch.tensor([[100.0]]), torch.tensor([[300.0]])
    assert huber(output, target) == huber.in_units(None)(output / 77, target / 77)
    balanced = Recommended("balanced-softmax", 0.1, "classification", priors=shares).loss()
    logits, labels = torch.zeros(1, 2), torch.tensor([1])
    torch.testing.assert_close(balanced(logits, labels), torch.tensor(0.1).log().neg())
    evomal.save_loss(balanced, tmp_path / "balanced.json")
    assert evomal.load_loss(tmp_path / "balanced.json").priors == shares
    assert Recommended("balanced-softmax", None, "classification").loss().priors is None


def test_what_is_recommended_has_the_units_and_priors_of_the_result():
    final = Final(((row(3, 0, 0.6492), Scores((0.66, 0.684))),), {"mse": Scores((0.658, 0.678))})
    found = result(final, priors=(0.9, 0.1))
    found = replace(found, best=replace(found.best, units=evomal.Units(mean=1.0, scale=2.0)))
    assert (found.recommended.name, found.recommended.units.scale, found.recommended.priors) == ("mse", 2.0, (0.9, 0.1))
    assert found.recommended.loss().units == found.best.units
    leading = replace(found, final=Final(((row(3, 0, 0.6), Scores((0.5, 0.5))),), {"mse": Scores((0.7, 0.7))}))
    assert leading.recommended.learned == leading.best
    assert leading.recommended.units == leading.best.units


@pytest.mark.parametrize(("advised", "is_known"), [("balanced-softmax", True), ("ce", False)])
def test_a_result_knows_the_shares_of_the_classes_that_its_advice_depends_on(advised, is_known, monkeypatch):
    monkeypatch.setattr(Final, "advised", advised)
    task = classification()
    counts = task.train.targets.bincount().double()
    shares = pytest.approx((counts / counts.sum()).tolist())
    assert search(task, seed=1, **SHORT).priors == (shares if is_known else None)


def test_the_summary_says_what_the_best_is():
    final = Final(((row(3, 0, 0.6492), Scores((0.66, 0.684))),), {"mse": Scores((0.658, 0.678))})
    assert summary_lines(result(final)) == [
        ("best loss", "(f - y)**2"),
        ("expression", "square(sub(y, f)) (4 nodes)"),
        (
            "validation",
            "mse 0.672 ± 0.017 (mean of 2 fresh seeds), found in generation 4; in the search 0.6492",
        ),
        ("rivals", "mse 0.668 ± 0.014 (the same seeds)"),
        ("final", "no lead over mse"),
    ]
    assert summary_lines(result())[2:] == [
        ("validation", "mse 0.6492 (the best of one training each), found in generation 4"),
        ("rivals", "mse 0.668, mae diverged (one training each)"),
    ]


def test_where_more_is_better_the_metric_is_shown_and_not_its_negative():
    final = Final(((row(3, 0, -0.5), Scores((-0.75, -0.75))),), {"mse": Scores((-0.5, -0.5))})
    found = dict(summary_lines(result(final, higher_is_better=True)))
    assert found["validation"].startswith("mse 0.75 ± 0 (mean of 2 fresh seeds)")
    assert found["rivals"] == "mse 0.5 ± 0 (the same seeds)"
    assert found["final"] == "beats mse by 0.25 ± 0 on validation; `evomal compare` tells whether it does on test"


def test_shares_are_shown_in_percent():
    final = Final(((row(3, 0, 0.25), Scores((0.25, 0.25))),), {"ce": Scores((0.5, 0.5))})
    found = dict(summary_lines(replace(result(final), metric="error_rate")))
    assert found["validation"].startswith("error_rate 25.00 ± 0.00 % (mean of 2 fresh seeds), found in generation 4")
    assert found["rivals"] == "ce 50.00 ± 0.00 % (the same seeds)"
    assert found["final"].startswith("beats ce by 25.00 ± 0.00 points on validation")


def test_a_printed_result_is_its_summary():
    found = replace(
        result(), history=(Generation(0, 3, {State.EVALUATED: 2, State.FAILED: 1}, None, {}),),
        failures={"evaluate failed: ValueError": 1}, forced=("threads was 1 but is 2",), folder=Path("runs/mine"),
    )  # fmt: skip
    assert str(found) == found.summary()
    assert found.summary().splitlines() == [
        "best loss    (f - y)**2",
        "expression   square(sub(y, f)) (4 nodes)",
        "validation   mse 0.6492 (the best of one training each), found in generation 4",
        "rivals       mse 0.668, mae diverged (one training each)",
        "candidates   2 evaluated, 1 failed",
        "failed       1 time: evaluate failed: ValueError",
        "forced       resumed although threads was 1 but is 2: the result may differ",
        "ended        done, after 1.0 s",
        "files        runs/mine",
    ]
    long = "/a folder/" + "with a long name/" * 6
    wide = replace(found, ending="word " * 30, folder=Path(long))
    *lines, last = wide.summary().splitlines()
    assert max(map(len, lines)) <= 80 < len(last), "a folder is one line, to be copied"
    assert [line[:13] for line in lines[-3:]] == ["ended        ", " " * 13, " " * 13]
    nothing = replace(found, best=None, failures={}, forced=(), folder=None)
    assert nothing.summary().splitlines() == [
        "nothing survived: 2 evaluated, 1 failed",
        "rivals       mse 0.668, mae diverged (one training each)",
        "ended        done, after 1.0 s",
    ]
    assert replace(nothing, history=()).summary().startswith("nothing was tried: it ended before its first generation")
