"""Fronts, against every pair of losses compared."""

import numpy as np
import pytest

from evomal.errors import InputError
from evomal.figures.front import formula_of, front
from evomal.methods.candidates import Archive
from evomal.runs.reading import read_runs
from tests.figures.records import record, row

SIZES = {2: "abs(f)", 3: "sub(f, y)", 4: "abs(sub(f, y))", 5: "abs(abs(sub(f, y)))", 6: "abs(abs(abs(sub(f, y))))"}


def test_the_front_is_what_nothing_beats(tmp_path):
    rows = [
        row(0, 0, 5.0, genome=SIZES[4]), row(0, 1, 6.0, genome=SIZES[3]), row(0, 2, 5.0, genome=SIZES[5]),
        row(1, 0, 5.0, origin="elite", genome=SIZES[4]), row(1, 1, 1.0, "cached", genome=SIZES[2]), row(1, 2),
        row(1, 3, 2.0, genome=SIZES[6]), row(1, 4, 9.0, genome=SIZES[3]), row(1, 5, 5.0, genome=SIZES[4]),
    ]  # fmt: skip
    data = front(read_runs([record(tmp_path, rows)]))
    assert [(p.size, p.value, p.candidate.generation) for p in data.best] == [(3, 6, 0), (4, 5, 0), (6, 2, 1)]
    assert data.columns()["size"] == [3, 3, 4, 4, 5, 6]
    assert data.columns()["value"] == [6.0, 9.0, 5.0, 5.0, 5.0, 2.0]
    assert data.columns()["on front"] == [True, False, True, False, False, True]
    assert data.unit == "nodes"


def test_random_fronts_agree_with_all_pairs_and_with_the_archive(tmp_path):
    rng = np.random.default_rng(2)
    for number in range(10):
        archive, rows = Archive(), []
        for index in range(12):
            genome, fitness = SIZES[int(rng.integers(2, 7))], float(rng.integers(5))
            rows.append(row(0, index, fitness, genome=genome))
            archive.add(rows[-1])
        data = front(read_runs([record(tmp_path / str(number), rows)]))
        pairs = [(candidate.size, candidate.fitness) for candidate in rows]
        unbeaten = {
            (size, cost)
            for size, cost in pairs
            if not any(s <= size and c <= cost and (s, c) != (size, cost) for s, c in pairs)
        }
        assert {(point.size, point.value) for point in data.best} == unbeaten
        assert [(p.size, p.value, p.candidate.index) for p in data.best] == [
            (entry.size, entry.fitness, entry.index) for entry in archive.front
        ]


def test_more_may_be_better(tmp_path):
    rows = [row(0, 0, -0.2, genome=SIZES[3]), row(0, 1, -0.7, genome=SIZES[4]), row(0, 2, -0.5, genome=SIZES[5])]
    data = front(read_runs([record(tmp_path, rows, metric="r2")]))
    assert [(point.size, point.value) for point in data.best] == [(3, 0.2), (4, 0.7)]


def test_formulas_are_simplified_where_that_is_quick_and_texts_stand_as_they_are(tmp_path):
    large = "abs(" * 40 + "sub(f, y)" + ")" * 40
    rows = [
        row(0, 0, 4.0, genome="abs(sub(f, y))", weights=[2.0, 1.0, 1.0]), row(0, 1, 3.0, genome=large),
        row(0, 2, 2.0, genome="[1.0]"), row(0, 3, 5.0, genome="abs(sub(f, y))", weights=[1.0]),
        row(0, 4, 6.0, genome="a stranger's"),
    ]  # fmt: skip
    formulas = {
        point.candidate.index: formula_of(point.candidate)
        for point in front(read_runs([record(tmp_path, rows)])).points
    }
    assert formulas[0] == "2*Abs(f - y)"
    assert {index: formulas[index] for index in (1, 2, 3, 4)} == {index: rows[index].genome for index in (1, 2, 3, 4)}


def test_sizes_count_what_the_genome_is_made_of(tmp_path):
    numbers = front(read_runs([record(tmp_path / "t", [row(0, 0, 1.0, genome="[1.0,2.0]")], method="taylorglo")]))
    assert ([point.size for point in numbers.points], numbers.unit) == ([2], "numbers")
    form = front(read_runs([record(tmp_path / "m", [row(0, 0, 1.0, genome="network")], method="ml3")]))
    assert ([point.size for point in form.points], form.unit) == ([1], "")
    assert formula_of(form.points[0].candidate) == "softplus(W3·relu(W2·relu(W1·(f, y))))"


def test_odd_runs_have_a_front_all_the_same(tmp_path):
    odd = front(read_runs([record(tmp_path / "odd", [row(0, 0, 1.0, genome="abs("), row(0, 1, 2.0)])]))
    assert ([point.value for point in odd.best], odd.unsized) == ([2.0], 1)
    rejected = front(read_runs([record(tmp_path / "rejected", [row(0, 0)])]))
    assert (rejected.points, rejected.best, rejected.unsized) == ((), (), 0)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError) as refusal:
        front(read_runs([tmp_path / "none"]))
    assert str(refusal.value) == f"there is no run in {tmp_path / 'none'}"
