"""Searches as data frames: of a result, of its record, and what is said without pandas."""

import math
import sys
from dataclasses import replace

import pytest

import evomal
from evomal.errors import InputError
from evomal.methods.candidates import State, proposed
from evomal.runs.generations import summarised
from evomal.runs.results import SearchResult
from tests.engine.populations import regression
from tests.runs.test_run_loop import SHORT


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A search that was recorded, and the same without a record."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    return [evomal.search(regression(), seed=1, folder=place, **SHORT) for place in (folder, None)]


def test_the_frame_has_a_row_for_each_candidate(results):
    recorded, unrecorded = (result.to_dataframe() for result in results)
    assert len(recorded) == 18
    assert recorded.generation.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    evaluated = recorded[recorded.state == "evaluated"]
    assert evaluated.fitness.min() == min(one.best.fitness for one in results[0].history if one.best is not None)
    assert (evaluated.value == evaluated.fitness).all()  # the metric is a cost
    assert recorded[recorded.state == "rejected"].fitness.isna().all()
    assert set(recorded.metric) == {"mse"}
    times = ["seconds"]
    assert recorded.drop(columns=times).equals(unrecorded.drop(columns=times))


def test_a_run_that_is_loaded_is_the_run_of_the_result(results):
    result, unrecorded = results
    run = evomal.load_run(result.folder)
    assert run.to_dataframe().equals(result.to_dataframe())
    assert run.history == result.history
    for own in (result.run, unrecorded.run):
        assert (own.best, own.rivals, own.task, own.kind) == (run.best, run.rivals, run.task, run.kind)
        assert own.settings == {**run.settings, "source": own.settings["source"]}
    assert (run.state, result.run.state) == ("complete", "complete")


def test_a_result_made_by_hand_has_no_candidates():
    with pytest.raises(InputError, match="this result has no candidates, as it was not returned by a search"):
        SearchResult(None, (), (), "done", None, 1.0).to_dataframe()


def test_the_metric_has_its_own_sign(results):
    run = results[0].run
    settings = {**run.settings, "task": {"0": {**run.settings["task"]["0"], "metric": "r2", "higher_is_better": True}}}
    frame = evomal.Run(run.folder, run.state, settings, run.candidates).to_dataframe()
    known = frame[frame.fitness.notna()]
    assert (known.value == -known.fitness).all()
    assert math.isnan(frame.value[frame.fitness.isna()].iloc[0])


def test_the_best_of_a_generation_may_have_its_fitness_from_an_equal_one():
    trained = proposed("huber", "given").measured(0.3)
    equal = replace(trained, genome="mae", state=State.EQUIVALENT, generation=1, origin="elite")
    worse = replace(trained, genome="mse", fitness=0.4, generation=1, index=1)
    failed = replace(worse.ended(State.DIVERGED, "diverged"), index=2)
    first, second = summarised([trained, equal, worse, failed])
    assert (first.best, second.best) == (trained, equal)
    assert second.counts == {State.EVALUATED: 1, State.DIVERGED: 1}


def test_without_pandas_it_is_one_sentence(monkeypatch, results):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"^a data frame needs pandas, which is not installed: pip install pandas$"):
        results[0].to_dataframe()
