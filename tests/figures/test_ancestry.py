"""Ancestors, in family trees made by hand."""

import math
from pathlib import Path

import pytest

from evomal.errors import InputError
from evomal.figures.ancestry import ancestry, changed
from evomal.runs.reading import read_runs
from evomal.runs.recorded_run import Run, Runs, RunState
from tests.figures.records import record, row, settings

A, B, C = "abs(sub(f, y))", "square(f)", "tanh(sub(f, y))"
FAMILY = [
    row(0, 0, 9.0, genome=A), row(0, 1, genome=B), row(0, 2, 8.0, genome=C),
    row(1, 0, 8.0, genome=C, origin="elite", parents=[2]),
    row(1, 1, 7.0, genome="abs(sub(f, square(f)))", origin="crossover", parents=[0, 1]),
    row(2, 0, 7.0, "cached", genome="abs(sub(f, square(f)))", origin="copy", parents=[1]),
    row(2, 1, 8.0, "cached", genome=C, origin="crossover", parents=[0, 1]),
    row(2, 2, 1.5, genome="abs(f)", origin="mutation", parents=[0]),
    row(3, 0, 1.0, genome="abs(sub(f, tanh(sub(f, y))))", origin="crossover", parents=[0, 1]),
]  # fmt: skip


def family(folder, rows, **described):
    return ancestry(read_runs([record(folder, rows, **described)]))


def test_the_family_of_the_best_is_found_and_copies_are_left_out(tmp_path):
    data = family(tmp_path, FAMILY)
    assert [(at.generation, at.index, at.origin) for at in (row.candidate for row in data.ancestors)] == [
        (0, 0, "initial"), (0, 1, "initial"), (0, 2, "initial"), (1, 1, "crossover"), (3, 0, "crossover"),
    ]  # fmt: skip
    assert data.edges == ((0, 3), (1, 3), (3, 4), (2, 4))
    assert data.left_out == 3  # the copy, the crossover that gave back its parent, and the elite behind it
    assert data.main_line == (0, 3, 4)
    assert [row.value for row in data.ancestors[2:]] == [8.0, 7.0, 1.0]
    assert math.isnan(data.ancestors[1].value)
    assert data.sentence == ""
    changes = [(change.replaced, change.replacement) for change in data.changes()]
    assert changes == [("", A), ("y", "square(f)"), ("square(f)", "tanh(sub(f, y))")]


def test_elites_and_migrants_are_left_out_and_other_weights_are_a_step(tmp_path):
    rows = [
        row(0, 0, 4.0, genome=A, weights=[1, 1, 1]), row(0, 1, 5.0, genome=C, weights=[1, 1, 1]),
        row(1, 0, 4.0, genome=A, weights=[1, 1, 1], origin="elite", parents=[0]),
        row(1, 1, 5.0, genome=C, weights=[1, 1, 1], origin="elite", parents=[1]),
        row(1, 2, 4.0, genome=A, weights=[1, 1, 1], origin="migrant", parents=[0]),
        row(2, 0, 3.0, genome=A, weights=[2, 1, 3], origin="weight mutation", parents=[2]),
        row(3, 0, 3.0, genome=A, weights=[2, 1, 3], origin="elite", parents=[0]),
        row(4, 0, 1.0, genome="tanh(f)", weights=[2], origin="deletion", parents=[0]),
    ]  # fmt: skip
    data = family(tmp_path, rows)
    assert [row.candidate.place for row in data.ancestors] == ["0:0", "2:0", "4:0"]
    assert data.left_out == 2
    changes = [(change.replaced, change.replacement) for change in data.changes()]
    assert changes == [("", A), ("2 of 3 weights", "others"), (A, "tanh(f)")]


def test_the_table_names_parents_by_generation_and_place(tmp_path):
    columns = family(tmp_path, FAMILY).columns()
    assert columns["parents"] == ["", "", "", "1/0 1/1", "2/1 1/2"]
    assert columns["on main line"] == [True, False, False, True, True]
    assert columns["state"] == ["evaluated", "rejected", "evaluated", "evaluated", "evaluated"]
    assert columns["genome"] == [A, B, C, "abs(sub(f, square(f)))", "abs(sub(f, tanh(sub(f, y))))"]
    assert {len(column) for column in columns.values()} == {5}


def test_the_fitter_parent_is_the_main_one_and_one_without_fitness_never(tmp_path):
    rows = [
        row(0, 0, 4.0, genome=A), row(0, 1, 3.0, genome=B), row(0, 2, genome=C),
        row(1, 0, 2.0, genome="mul(f, y)", origin="crossover", parents=[0, 1]),
        row(1, 1, 2.5, genome="add(f, y)", origin="crossover", parents=[2, 0]),
        row(2, 0, 1.0, genome="sub(y, f)", origin="crossover", parents=[1, 0]),
    ]  # fmt: skip
    data = family(tmp_path, rows)
    assert [ancestor.main_parent for ancestor in data.ancestors] == [None, None, None, 1, 0, 3]
    assert data.main_line == (1, 3, 5)


def test_of_equal_parents_the_first_is_the_main_one_and_more_may_be_better(tmp_path):
    rows = [row(0, 0, -1.0, genome=A), row(0, 1, -1.0, genome=B), row(1, 0, -2.0, origin="crossover", parents=[1, 0])]
    data = family(tmp_path, rows, metric="r2")
    assert [row.value for row in data.ancestors] == [1.0, 1.0, 2.0]
    assert data.ancestors[2].main_parent == 1
    assert data.main_line == (1, 2)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "nothing was trained in this run"),
        ([row(0, 0), row(1, 0, 2.0, "cached")], "nothing was trained in this run"),
        ([row(0, 0, 1.0)], "there is only one generation, so no candidate has parents"),
        (
            [row(0, 0, 1.0, genome="network", origin="given"), row(1, 0, 0.5, genome="network", origin="continued")],
            "the candidates of ml3 have no parents: their origin is given or continued",
        ),
        (
            [row(0, 0, 1.0), row(1, 0, 2.0, genome=B, origin="mutation", parents=[0])],
            "the best candidate has no parents: its origin is 'initial', in generation 1",
        ),
        (
            [row(0, 0, 2.0), row(1, 0, 1.0, genome=B, origin="mutation", parents=[17])],
            "the parents of the best candidate are not recorded",
        ),
        ([row(0, 0, 2.0, parents=[0])], "the parents of the best candidate are not recorded"),
    ],
)
def test_who_has_no_ancestors_says_why(tmp_path, rows, sentence):
    data = family(tmp_path, rows, method="ml3")
    assert data.sentence == sentence
    assert (data.edges, len(data.main_line)) == ((), len(data.ancestors))
    assert len(data.ancestors) <= 1
    assert len(data.changes()) == len(data.ancestors)


def test_no_run_is_an_error(tmp_path):
    with pytest.raises(InputError) as refusal:
        ancestry(read_runs([tmp_path]))
    assert str(refusal.value) == f"there is no run in {tmp_path}"


def test_long_lines_of_copies_and_of_changes_are_followed_to_their_end():
    rows = [row(0, 0, 5000.0, genome="sub(f, y)")]
    for generation in range(1, 1200):
        copied = generation % 2 == 0
        genome = rows[-1].genome if copied else ("abs(sub(f, y))", "sub(y, f)")[generation // 2 % 2]
        origin = "copy" if copied else "mutation"
        rows.append(row(generation, 0, 5000.0 - generation, genome=genome, origin=origin, parents=[0]))
    run = Run(Path(), RunState.COMPLETE, settings(), tuple(rows))
    data = ancestry(Runs((run,)))
    assert (len(data.ancestors), data.left_out) == (601, 599)
    assert data.main_line == tuple(range(601))


def test_genomes_that_are_no_formulas_are_shown_whole(tmp_path):
    rows = [row(0, 0, 2.0, genome="[1.0]"), row(1, 0, 1.0, genome="abs(", origin="mutation", parents=[0])]
    data = family(tmp_path, rows)
    assert [(change.replaced, change.replacement) for change in data.changes()] == [("", "[1.0]"), ("[1.0]", "abs(")]


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ("abs(sub(f, y))", "abs(sub(f, 1))", ("y", "1")),
        ("abs(sub(f, y))", "square(sub(f, y))", ("abs(sub(f, y))", "square(sub(f, y))")),
        ("add(abs(f), mul(y, f))", "add(abs(f), mul(y, sqrt(f)))", ("f", "sqrt(f)")),
        ("add(abs(f), mul(y, f))", "add(abs(y), mul(y, 1))", ("add(abs(f), mul(y, f))", "add(abs(y), mul(y, 1))")),
        ("mul(add(y, f), y)", "mul(add(f, y), y)", ("add(y, f)", "add(f, y)")),
        ("abs(f)", "abs(f)", ("abs(f)", "abs(f)")),
    ],
)
def test_the_smallest_changed_part_is_told(before, after, parts):
    assert changed(before, after) == parts
