"""Runs are followed while they grow: each row is read once, the writer never waits long, and damage is a sentence."""

import itertools
import math
import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from evomal.methods.candidates import State, front_of, trained
from evomal.runs import RunStore, following, load_run
from evomal.runs.canonical import checksum
from evomal.runs.database import column_names
from evomal.runs.following import FollowedRun
from evomal.runs.recorded_run import RunState
from evomal.runs.store import RECORD_NAME
from evomal.runs.views import COLUMNS, RunView
from tests.figures.records import record, row, settings, trials

GENOMES = ("abs(sub(f, y))", "square(sub(f, y))", "add(abs(sub(f, y)), square(sub(f, y)))", "abs(mul(f, sub(f, y)))")


def generation(number, size=5):
    rng = np.random.default_rng(number)
    rows = [
        row(
            number, index, float(rng.uniform(0.1, 1)) if index % 2 else math.inf, genome=GENOMES[index % 4],
            parents=(index,) if number else (), origin="crossover" if number else "initial", evaluate=0.5,
        )
        for index in range(size)
    ]  # fmt: skip
    return [*rows, row(number, size, 0.05, origin="elite", parents=(1,))] if number else rows


@pytest.fixture
def folder(tmp_path):
    """A run of three generations with rivals, not complete."""
    record(tmp_path / "run", [one for n in range(3) for one in generation(n)], complete=False, rivals={"mse": 0.5})
    return tmp_path / "run"


def test_a_view_agrees_with_the_run_read_as_a_whole(folder):
    followed = FollowedRun(folder)
    assert followed.refresh()
    view, run = followed.view, load_run(folder)
    assert (view.head.state, view.generations, len(view.table)) == (run.state, run.generations, len(run.candidates))
    assert view.head.settings == run.settings
    assert view.head.rivals == run.rivals
    assert len(view.evaluated) == len(run.trained)
    ranked = view.read(view.by_rank)
    assert [one.place for one in ranked if one in trained(run.trained)] == [one.place for one in trained(run.trained)]
    assert [one.place for one in view.read(view.front["rowid"])] == [one.place for one in front_of(run.comparable)]
    counts = {state: int(found.sum()) for state, found in view.counts.items()}
    assert counts == {state: sum(one.state is state for one in run.computed) for state in counts}
    assert view.sample(view.by_rank).best == run.best
    assert view.stages == {"evaluate": pytest.approx(7.5)}
    assert [one.size for one in ranked] == view.table["size"][np.argsort(view.table["rowid"])][
        view.by_rank - 1
    ].tolist()


def test_the_view_of_a_run_in_memory_is_that_of_its_record(folder):
    followed = FollowedRun(folder)
    followed.refresh()
    view, held = followed.view, RunView.of(load_run(folder))
    names = [name for name in COLUMNS.names if name != "rowid"]
    assert view.table[names].tolist() == held.table[names].tolist()
    assert (view.generations, dict(view.stages)) == (held.generations, dict(held.stages))
    assert view.read(view.by_rank) == held.read(held.by_rank)
    assert view.best_by_generation.tolist() == held.best_by_generation.tolist()


def test_only_what_was_appended_is_read(folder, monkeypatch):
    followed = FollowedRun(folder)
    followed.refresh()
    read = []
    monkeypatch.setattr(following, "require_intact", lambda values, proof: read.append(values[:2]))
    with RunStore.open(folder) as store:
        store.write_chunk(3, generation(3))
        store.write_trials(trials("final", {"mse": [0.1]}, 3000))
    assert followed.refresh()
    assert followed.view.generations == 4
    assert read == [(3, index) for index in range(6)]
    assert [trial.stage for trial in followed.view.trials] == ["rivals", "final"]


def test_nothing_new_is_no_change(folder, monkeypatch):
    followed = FollowedRun(folder)
    assert [followed.refresh() for _ in range(3)] == [True, False, False]
    old = time.time() - 60
    os.utime(folder / RECORD_NAME, (old, old))
    followed.refresh()
    monkeypatch.setattr(following, "reading_record", None)  # from now on a look does not open the file
    assert followed.refresh() is False
    assert followed.view.head.problem == ""


def test_earlier_views_stay_as_they_are(folder):
    followed = FollowedRun(folder)
    followed.refresh()
    before = followed.view
    copy = before.table.copy()
    with RunStore.open(folder) as store:
        for number in range(3, 60):
            store.write_chunk(number, generation(number))
            followed.refresh()
    assert np.array_equal(before.table, copy)
    assert len(followed.view.table) == 5 + 59 * 6


def test_states_follow_the_writer(folder):
    followed = FollowedRun(folder)
    with RunStore.open(folder) as store:
        followed.refresh()
        assert followed.view.head.state is RunState.RUNNING
        store.finish("all generations are done")
    followed.refresh()
    assert followed.view.head.state is RunState.COMPLETE
    assert followed.view.head.ending == "all generations are done"


def test_a_large_record_is_read_in_pieces(folder, monkeypatch):
    monkeypatch.setattr(following, "_AT_ONCE", 4)
    clock = itertools.count()
    monkeypatch.setattr(following.time, "monotonic", lambda: float(next(clock)))
    followed, seen = FollowedRun(folder), []
    while not followed.view.is_whole:
        assert followed.refresh(2.5)  # two pieces
        seen.append((followed.view.generations, len(followed.view.table)))
    assert seen == [(1, 5), (2, 11), (3, 17)]  # whole generations only


def test_the_writer_is_not_kept_waiting(folder, monkeypatch):
    """While rows are parsed, no transaction is open."""
    monkeypatch.setattr(following, "_AT_ONCE", 2)
    waits = []

    def write(values, proof):
        begin = time.perf_counter()
        connection = sqlite3.connect(folder / RECORD_NAME, timeout=0)
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("ROLLBACK")
        connection.close()
        waits.append(time.perf_counter() - begin)

    monkeypatch.setattr(following, "require_intact", write)
    followed = FollowedRun(folder)
    followed.refresh()
    assert followed.view.head.problem == ""
    assert len(waits) == 17


def test_a_record_that_was_replaced_is_read_anew(folder, tmp_path):
    followed = FollowedRun(folder)
    followed.refresh()
    shutil.rmtree(folder)
    record(folder, generation(0), seed=7)
    followed.refresh()
    assert (followed.view.generations, followed.view.head.seed, len(followed.view.table)) == (1, 7, 5)


@pytest.mark.parametrize("in_place", [True, False])
def test_another_branch_of_the_same_run_is_read_anew(folder, tmp_path, in_place):
    """A copy of the record, resumed elsewhere: it was created at the same moment and is longer."""
    branch = shutil.copytree(folder, tmp_path / "branch")
    followed = FollowedRun(folder)
    for place, numbers in ((folder, (3,)), (branch, (4, 5))):
        with RunStore.open(place) as store:
            for chunk, number in enumerate(numbers, 3):
                store.write_chunk(chunk, [replace(one, generation=chunk) for one in generation(number)])
        followed.refresh()
    if in_place:
        shutil.copyfile(branch / RECORD_NAME, folder / RECORD_NAME)
    else:
        os.replace(branch / RECORD_NAME, folder / RECORD_NAME)
    followed.refresh()
    assert followed.view.read(followed.view.table["rowid"]) == list(load_run(folder).candidates)
    assert followed.view.table["fitness"].tolist() == [one.fitness for one in load_run(folder).candidates]


def test_a_missing_record_is_a_sentence_until_it_is_back(folder, tmp_path):
    followed = FollowedRun(folder)
    followed.refresh()
    os.rename(folder / RECORD_NAME, tmp_path / "kept")
    assert followed.refresh()
    assert followed.refresh() is False
    assert followed.view.head.state is RunState.UNREADABLE
    os.rename(tmp_path / "kept", folder / RECORD_NAME)
    assert followed.refresh()
    assert (followed.view.head.problem, followed.view.generations) == ("", 3)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE candidates SET genome = 'abs(f)' WHERE generation = 1", "does not match its checksum"),
        ("DELETE FROM candidates WHERE generation = 2 AND position = 5", "incomplete"),
        ("DELETE FROM settings", "settings are missing"),
        ("UPDATE chunks SET generation = 77 WHERE number = 1", "checksum"),
        ("CREATE TABLE more (x)", "tables are not those"),
    ],
)
def test_damage_is_a_sentence(folder, statement, reason):
    with sqlite3.connect(folder / RECORD_NAME) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(statement)
    connection.close()
    followed = FollowedRun(folder)
    assert followed.refresh()
    assert followed.view.head.state is RunState.DAMAGED
    assert reason in followed.view.head.problem
    assert followed.refresh() is False


def test_senseless_settings_are_damage(tmp_path):
    with RunStore.create(tmp_path, {**settings(), "budgets": ["no object"]}):
        pass
    followed = FollowedRun(tmp_path)
    followed.refresh()
    assert "its budgets must be an object" in followed.view.head.problem


def test_ancestors_are_those_of_the_record(folder):
    followed = FollowedRun(folder)
    followed.refresh()
    (candidate,) = followed.view.read([followed.view.rowid_of(2, 3)])
    assert [one.place for one in followed.view.ancestors(candidate)] == ["1:3", "0:3"]
    assert followed.view.rowid_of(9, 9) is None


def test_the_curve_of_the_best_never_rises(folder):
    followed = FollowedRun(folder)
    followed.refresh()
    best = followed.view.best_by_generation
    assert len(best) == 3
    assert (np.diff(best) <= 0).all()
    assert followed.view.counts[State.REJECTED].tolist() == [3, 3, 3]


def test_the_curve_of_the_best_ends_at_the_best_and_not_at_a_shorter_rung(tmp_path):
    rungs = ((1.0, 0.4), (1.0, 0.5))
    rows = [replace(row(0, 0, 0.5), rungs=rungs), *(replace(row(1, n, 0.2), rungs=rungs[:1]) for n in range(2))]
    followed = FollowedRun(record(tmp_path / "run", rows))
    followed.refresh()
    assert followed.view.best_by_generation.tolist() == [0.5, 0.5]
    assert followed.view.best_row["fitness"] == 0.5


def test_generations_that_come_back_are_damage(folder):
    with closing(sqlite3.connect(folder / RECORD_NAME)) as connection, connection:
        names = ", ".join(column_names("chunks"))
        ((_, _, *rest),) = connection.execute(f"SELECT {names} FROM chunks WHERE number = 2")
        proof = checksum(["chunks", 2, 0, *rest])
        connection.execute("UPDATE chunks SET generation = 0, checksum = ? WHERE number = 2", (proof,))
    followed = FollowedRun(folder)
    followed.refresh()
    assert "its chunk 2 is of generation 0" in followed.view.head.problem
