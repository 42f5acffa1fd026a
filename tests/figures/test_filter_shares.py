"""Shares of outcomes, against numbers by hand and counts by SQL."""

import sqlite3

import numpy as np
import pytest

from evomal.figures.filter_shares import filter_shares
from evomal.methods.candidates import State
from evomal.runs.reading import read_runs
from tests.figures.records import record, row


def test_shares_are_the_mean_of_each_search_s_shares(tmp_path):
    first = [row(0, 0, 1.0), row(0, 1), row(0, 2), row(0, 3), row(1, 0, 1.0, origin="elite"), row(1, 1, 1.0, "cached")]
    second = [row(0, 0, 1.0), row(0, 1, state="dead gradient")]
    record(tmp_path / "a", first)
    record(tmp_path / "b", second, seed=1)
    (group,) = filter_shares(read_runs([tmp_path])).groups
    assert (group.generations.tolist(), group.searches.tolist(), group.total_searches) == ([1, 2], [2, 1], 2)
    assert {state: shares.tolist() for state, shares in group.shares.items()} == {
        State.EVALUATED: [(1 / 4 + 1 / 2) / 2, 0.0],
        State.CACHED: [0.0, 1.0],
        State.DEAD: [1 / 4, 0.0],
        State.REJECTED: [3 / 8, 0.0],
    }
    assert group.totals == {State.EVALUATED: 2, State.CACHED: 1, State.DEAD: 1, State.REJECTED: 3}


def test_shares_can_be_averaged_over_tasks_as_in_the_paper(tmp_path):
    record(tmp_path / "a", [row(0, 0, 1.0), row(0, 1), row(0, 2), row(0, 3)], task="first")
    record(tmp_path / "b", [row(0, 0, 1.0), row(0, 1)], task="second", metric="error_rate")
    record(tmp_path / "c", [row(0, 0), row(1, 0, 1.0)], task="second", metric="error_rate", seed=1)
    record(tmp_path / "d", [row(0, 0, 1.0)], task="second", metric="error_rate", method="gp-lfl")
    runs = read_runs([tmp_path])
    assert [(group.task, group.method) for group in filter_shares(runs).groups] == [
        ("first, linear", "evomal"), ("second, linear", "evomal"), ("second, linear", "gp-lfl"),
    ]  # fmt: skip
    data = filter_shares(runs, across_tasks=True)
    assert [(group.task, group.method, group.total_searches) for group in data.groups] == [
        ("mean over 2 tasks", "evomal", 3), ("mean over 2 tasks", "gp-lfl", 1),
    ]  # fmt: skip
    assert data.groups[0].searches.tolist() == [3, 1]
    assert data.groups[0].shares[State.EVALUATED].tolist() == pytest.approx([(1 / 4 + 1 / 2 + 0) / 3, 1.0])


def test_counts_equal_those_of_the_database(tmp_path):
    rng = np.random.default_rng(1)
    states = [str(state) for state in State]
    rows = []
    for generation in range(6):
        for index in range(20):
            state = str(rng.choice(states))
            fitness = 1.0 if state == "evaluated" else float("inf")
            rows.append(row(generation, index, fitness, state, origin=str(rng.choice(["elite", "copy", "mutation"]))))
    record(tmp_path, rows)
    (group,) = filter_shares(read_runs([tmp_path])).groups
    with sqlite3.connect(tmp_path / "run.sqlite") as database:
        counted = database.execute(
            "SELECT generation, state, COUNT(*) FROM candidates WHERE origin <> 'elite' GROUP BY generation, state"
        ).fetchall()
        sizes = dict(
            database.execute("SELECT generation, COUNT(*) FROM candidates WHERE origin <> 'elite' GROUP BY generation")
        )
    database.close()
    expected = {state: [0.0] * 6 for state in states}
    for generation, state, count in counted:
        expected[state][generation] = count / sizes[generation]
    assert {str(state): pytest.approx(shares.tolist()) for state, shares in group.shares.items()} == expected
    assert sum(group.totals.values()) == sum(sizes.values())


def test_a_generation_of_elites_alone_is_passed_over(tmp_path):
    record(tmp_path, [row(0, 0, 1.0), row(1, 0, 1.0, origin="elite"), row(2, 0)])
    (group,) = filter_shares(read_runs([tmp_path])).groups
    assert group.generations.tolist() == [1, 3]
    assert group.shares[State.REJECTED].tolist() == [0.0, 1.0]


def test_the_table_has_a_row_for_each_outcome_of_each_generation(tmp_path):
    record(tmp_path, [row(0, 0, 1.0), row(0, 1), row(1, 0)])
    assert filter_shares(read_runs([tmp_path])).columns() == {
        "task": ["planted, linear"] * 4,
        "method": ["evomal"] * 4,
        "generation": [1, 2, 1, 2],
        "outcome": ["evaluated", "evaluated", "rejected", "rejected"],
        "share": [0.5, 0.0, 0.5, 1.0],
        "searches": [1] * 4,
    }


def test_without_candidates_there_is_a_sentence(tmp_path):
    assert filter_shares(read_runs([tmp_path])).sentence == f"there is no run in {tmp_path}"
    record(tmp_path, [])
    data = filter_shares(read_runs([tmp_path]))
    assert (data.groups, data.sentence) == ((), "nothing is recorded yet in these runs")
