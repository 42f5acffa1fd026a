"""The best distinct losses: ranked as an archive ranks, each shape once."""

import math

import numpy as np
import pytest

from evomal.report import best_losses as module
from evomal.report.best_losses import best_losses
from evomal.runs.reading import read_runs
from tests.figures.records import record, row

ONES = (1.0,) * 3
SQUARE, MIRRORED, ABSOLUTE = "square(sub(f, y))", "square(sub(y, f))", "abs(sub(f, y))"


def ranked(folder, **options):
    (found,) = best_losses(read_runs([folder]), **options)
    return found


def test_losses_are_ranked_by_fitness_then_size_then_age(tmp_path):
    rows = [
        row(0, 0, 0.5, genome=ABSOLUTE, weights=ONES),
        row(0, 1, 0.3, genome="tanh(square(sub(f, y)))", weights=(*ONES, 1.0)),
        row(1, 0, 0.3, genome=SQUARE, weights=ONES, origin="mutation"),
        row(1, 1, genome="mul(f, f)"),
        row(1, 2, 0.5, genome=ABSOLUTE, weights=ONES, origin="elite"),
    ]
    found = ranked(record(tmp_path, rows))
    assert [entry.candidate.genome for entry in found.rows] == [SQUARE, "tanh(square(sub(f, y)))", ABSOLUTE]
    assert [entry.formula for entry in found.rows] == ["(f - y)**2", "tanh((f - y)**2)", "Abs(f - y)"]
    assert [(entry.size, entry.generation, entry.value) for entry in found.rows] == [
        (4, 2, 0.3),
        (5, 1, 0.3),
        (4, 1, 0.5),
    ]
    assert (found.trained, found.metric, found.task) == (3, "mse", "planted, linear")
    assert found.columns()["origin"] == ["mutation", "initial", "initial"]
    assert {len(column) for column in found.columns().values()} == {3}


def test_finalists_come_first_by_their_mean_in_the_final(tmp_path):
    bent = "tanh(square(sub(f, y)))"
    rows = [
        row(0, 0, 0.3, genome=ABSOLUTE, weights=ONES),
        row(0, 1, 0.2, genome=SQUARE, weights=ONES),
        row(1, 0, 0.1, genome=bent, weights=(*ONES, 1.0)),
        row(1, 1, 0.05, genome="sqrt(abs(sub(f, y)))", weights=(*ONES, 1.0)),
    ]
    final = {"mse": (0.5, 0.5), "1:0": (0.9, math.inf), "1:1": (0.75, 0.25), "0:1": (0.25, 0.5)}
    found = ranked(record(tmp_path, rows, final=final))
    assert [entry.candidate.genome for entry in found.rows] == [SQUARE, "sqrt(abs(sub(f, y)))", bent, ABSOLUTE]
    assert found.columns()["final mean"] == [0.375, 0.5, None, None]
    assert [entry.scores is None for entry in found.rows] == [False, False, False, True]


def test_losses_of_one_shape_or_one_formula_count_once(tmp_path):
    rows = [
        row(0, 0, 0.1, genome=SQUARE, weights=(1.5, 1.0, 1.0)),
        row(0, 1, 0.2, genome=MIRRORED, weights=(1.5, 1.0, 1.0)),  # the same shape
        row(0, 2, 0.3, genome=SQUARE, weights=(1.50002, 1.0, 1.0)),  # another shape, the same text
        row(0, 3, 0.4, genome=SQUARE, weights=(2.0, 1.0, 1.0)),
    ]
    found = ranked(record(tmp_path, rows))
    assert [(entry.candidate.index, entry.again) for entry in found.rows] == [(0, 2), (3, 0)]


def test_the_best_twenty_are_kept(tmp_path):
    rows = [row(0, number, 0.1 * (number + 1), genome=SQUARE, weights=(1.0 + number, 1.0, 1.0)) for number in range(22)]
    found = ranked(record(tmp_path, rows))
    assert [entry.candidate.index for entry in found.rows] == list(range(20))
    assert found.trained == 22


def test_a_metric_of_which_more_is_better_is_shown_as_it_is(tmp_path):
    record(tmp_path, [row(0, 0, -0.8, genome=SQUARE), row(0, 1, -0.9, genome=ABSOLUTE)], metric="r2")
    assert [entry.value for entry in ranked(tmp_path).rows] == [0.9, 0.8]


def test_a_sketch_has_the_values_of_the_loss(tmp_path):
    (entry,) = ranked(record(tmp_path, [row(0, 0, 0.1, genome=SQUARE, weights=(3.0, 1.0, 1.0))])).rows
    errors = np.linspace(-3, 3, 41)
    assert entry.sketch.position_name == "f - y"
    assert np.allclose(entry.sketch.positions, errors)
    assert len(entry.sketch.values) == 3  # at y of -1, 0 and 1
    for values in entry.sketch.values:
        assert np.allclose(values, (3 * errors) ** 2, rtol=1e-5)


def test_runs_of_several_tasks_are_ranked_apart(tmp_path):
    record(tmp_path / "a", [row(0, 0, 0.1, genome=SQUARE)])
    record(tmp_path / "b", [row(0, 0, 0.2, genome=SQUARE)], method="random")
    record(tmp_path / "c", [row(0, 0, 9.0, genome=SQUARE)], task="other")
    record(tmp_path / "d", [row(0, 0)], task="third")
    found = best_losses(read_runs([tmp_path]))
    assert [(best.task, [entry.value for entry in best.rows]) for best in found] == [
        ("other, linear", [9.0]), ("planted, linear", [0.1]), ("third, linear", []),
    ]  # fmt: skip
    assert found[1].rows[0].again == 1


@pytest.mark.parametrize("genome", ["what(is, this", "nonsense", "[1.0]", "softplus(f)"])
def test_what_is_no_loss_has_its_text_and_no_shape(tmp_path, genome):
    (entry,) = ranked(record(tmp_path, [row(0, 0, 0.1, genome=genome)])).rows
    assert (entry.formula, entry.sketch, entry.loss()) == (genome, None, None)


def test_a_formula_that_is_a_number_gives_way_to_the_tree_unless_the_loss_is_flat(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "formula_of", lambda candidate: "0")
    record(tmp_path / "a", [row(0, 0, 0.1, genome=SQUARE, weights=ONES)])
    record(tmp_path / "b", [row(0, 0, 0.1, genome="mul(sub(f, f), y)", weights=(*ONES, 1.0))])
    assert ranked(tmp_path / "a").rows[0].formula == SQUARE
    assert ranked(tmp_path / "b").rows[0].formula == "0"
