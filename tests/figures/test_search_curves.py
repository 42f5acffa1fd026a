"""The best so far: means of known numbers, and of whom."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text

from evomal.figures.search_curves import best_by_evaluation, best_by_generation, draw_search_curves, search_curves
from evomal.methods.candidates import State
from evomal.runs.reading import read_runs
from evomal.runs.recorded_run import Run, RunState
from tests.figures.records import record, row, settings

FIRST = [
    row(0, 0, 3.0), row(0, 1, 5.0),
    row(1, 0, 2.0), row(1, 1),
    row(2, 0, 4.0), row(2, 1, 2.0, origin="elite", parents=[0], evaluate=1.0),
]  # fmt: skip
SECOND = [row(0, 0), row(1, 0, 6.0)]


def curves_of(folder):
    return {curve.against: curve for curve in search_curves(read_runs([folder])).curves}


def test_the_mean_is_of_those_that_had_trained_something_by_then(tmp_path):
    record(tmp_path / "a", FIRST)
    record(tmp_path / "b", SECOND, seed=1, complete=False)
    curve = curves_of(tmp_path)["generation"]
    assert curve.positions.tolist() == [1, 2, 3]
    # Best by generation: 3, 2, 2 and none, 6; the second is not complete, and leaves after its two generations.
    assert curve.mean.tolist() == [3.0, 4.0, 2.0]
    np.testing.assert_allclose(curve.deviation, [np.nan, math.sqrt(8), np.nan])
    assert (curve.searches.tolist(), curve.carried.tolist(), curve.total) == ([1, 2, 1], [0, 0, 0], 2)


def test_a_complete_search_keeps_its_best(tmp_path):
    record(tmp_path / "a", FIRST)
    record(tmp_path / "b", SECOND, seed=1)
    curves = curves_of(tmp_path)
    assert curves["generation"].mean.tolist() == [3.0, 4.0, 4.0]
    assert curves["generation"].carried.tolist() == [0, 0, 1]
    # Trained in order: 3, 5, 2, 4 (the elite was trained before) and 6.
    assert curves["evaluations"].mean.tolist() == [4.5, 4.5, 4.0, 4.0]
    assert curves["evaluations"].searches.tolist() == [2, 2, 2, 2]
    assert curves["evaluations"].carried.tolist() == [0, 1, 1, 1]


def test_evaluations_that_diverged_were_paid_for_and_taken_over_ones_were_not(tmp_path):
    rows = [
        row(0, 0, state="diverged", evaluate=2.0), row(0, 1, state="diverged", optimise=1.0),
        row(0, 2, 7.0, evaluate=1.0), row(0, 3, 1.0, "gradient-equivalent", filter=1.0), row(0, 4, 1.0, "cached"),
    ]  # fmt: skip
    record(tmp_path, rows)
    curves = curves_of(tmp_path)
    assert (curves["evaluations"].positions.tolist(), curves["evaluations"].mean.tolist()) == ([2], [7.0])
    assert curves["generation"].mean.tolist() == [7.0]


def test_more_may_be_better(tmp_path):
    record(tmp_path, [row(0, 0, -0.25), row(1, 0, -0.75), row(2, 0, -0.5)], metric="r2")
    curve = curves_of(tmp_path)["generation"]
    assert curve.higher_is_better
    assert curve.mean.tolist() == [0.25, 0.75, 0.75]


def test_there_is_a_curve_for_each_method_and_task(tmp_path):
    for number, (task, method) in enumerate([("x", "evomal"), ("x", "random"), ("y", "evomal")]):
        record(tmp_path / str(number), [row(0, 0, 1.0 + number)], task=task, method=method)
    data = search_curves(read_runs([tmp_path]))
    assert data.columns() == {
        "task": ["x, linear"] * 4 + ["y, linear"] * 2,
        "metric": ["mse"] * 6,
        "method": ["evomal", "random"] * 2 + ["evomal"] * 2,
        "against": ["generation"] * 2 + ["evaluations"] * 2 + ["generation", "evaluations"],
        "position": [1] * 6,
        "mean": [1.0, 2.0, 1.0, 2.0, 3.0, 3.0],
        "standard deviation": pytest.approx([math.nan] * 6, nan_ok=True),
        "searches": [1] * 6,
        "carried on": [0] * 6,
    }


def test_without_values_there_is_a_sentence(tmp_path):
    data = search_curves(read_runs([tmp_path]))
    assert (data.curves, data.sentence) == ((), f"there is no run in {tmp_path}")
    record(tmp_path / "empty", [])
    record(tmp_path / "rejected", [row(0, 0), row(0, 1)], seed=1)
    data = search_curves(read_runs([tmp_path]))
    assert (data.curves, data.sentence) == ((), "nothing was trained in these runs")
    assert set(map(len, data.columns().values())) == {0}


def test_huge_values_do_not_break_the_mean(tmp_path):
    record(tmp_path / "a", [row(0, 0, 1.7e308), row(1, 0, 1.0)])
    record(tmp_path / "b", [row(0, 0, 1.7e308), row(1, 0, 3.0)], seed=1)
    curve = curves_of(tmp_path)["generation"]
    assert curve.mean[1] == 2.0
    assert curve.mean[0] == math.inf


def test_curves_agree_with_a_search_by_hand_through_random_records():
    rng = np.random.default_rng(0)
    for _ in range(20):
        rows = []
        for generation in range(rng.integers(1, 7)):
            for index in range(rng.integers(1, 6)):
                state = str(rng.choice([str(state) for state in State]))
                fitness = float(rng.normal()) if state == "evaluated" else math.inf
                origin = str(rng.choice(["elite", "mutation"]))
                rows.append(row(generation, index, fitness, state, origin=origin))
        run = Run(Path(), RunState.COMPLETE, settings(), tuple(rows))
        last = rows[-1].generation
        for generation, found in zip(range(last + 1), best_by_generation(run), strict=True):
            known = [
                r.fitness
                for r in rows
                if r.generation <= generation and r.state is State.EVALUATED and r.origin != "elite"
            ]
            assert found == min(known) if known else math.isnan(found)
        trained = [r.fitness for r in rows if r.state is State.EVALUATED and r.origin != "elite"]
        assert best_by_evaluation(run).tolist() == [min(trained[: n + 1]) for n in range(len(trained))]


def test_a_shorter_rung_is_no_better_value():
    rungs = ((1.0, 0.4), (1.0, 0.5))
    rows = [replace(row(0, 0, 0.2), rungs=rungs[:1]), replace(row(1, 0, 0.5), rungs=rungs),
            replace(row(2, 0, 0.1), rungs=rungs[:1])]  # fmt: skip
    run = Run(Path(), RunState.COMPLETE, settings(), tuple(rows))
    assert best_by_generation(run).tolist()[1:] == best_by_evaluation(run).tolist()[1:] == [0.5, 0.5]
    assert np.isnan([best_by_generation(run)[0], best_by_evaluation(run)[0]]).all()


def test_rivals_are_levels_beside_the_curves(tmp_path):
    for seed, (mse, mae) in enumerate([(0.5, math.inf), (0.75, 0.25)]):
        record(tmp_path / str(seed), [row(0, 0, 1.0)], seed=seed, rivals={"mse": mse, "mae": mae})
    data = search_curves(read_runs([tmp_path]))
    first, second = data.rivals
    assert (first.name, first.is_baseline, first.mean, first.searches) == ("mse", True, 0.625, 2)
    assert first.deviation == pytest.approx(math.sqrt(2) / 8)
    assert (second.name, second.is_baseline, second.mean, second.searches) == ("mae", False, 0.25, 1)
    columns = data.columns()
    assert (columns["method"][-2:], columns["against"][-2:]) == (["mse", "mae"], ["rival", "rival"])
    assert (columns["position"][-2:], columns["mean"][-2:]) == ([None, None], [0.625, 0.25])


def test_a_rival_that_is_far_away_does_not_hide_one_that_is_near(tmp_path):
    rows = [row(generation, 0, 1.0 - 0.02 * generation) for generation in range(20)]
    record(tmp_path / "a", rows, rivals={"mse": 50.0, "mae": 1.1})
    figure = draw_search_curves(search_curves(read_runs([tmp_path])))
    low, high = figure.axes[0].get_ylim()
    assert low < 0.62
    assert 1.1 < high < 2
    assert any("lie beyond the axis" in text.get_text() for text in figure.findobj(Text))
    # A label outside of the axis would make the figure smaller.
    assert all(text.get_clip_on() for text in figure.axes[0].texts if text.get_text() == "mae")
