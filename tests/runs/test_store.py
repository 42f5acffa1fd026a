"""What is written is what is read: exactly, in order, and by whole chunks."""

import json
import math
import sqlite3
import struct
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from evomal.errors import EvomalError, InputError
from evomal.methods.candidates import Candidate, State
from evomal.runs import Difference, RunStore, versions
from evomal.runs.generations import summarised
from evomal.runs.rows import candidate_row

SETTINGS = {
    "seed": 0,
    "task": {"name": "diabetes", "model": "mlp", "options": {"hidden": 64}},
    "device": "cpu",
    "population_mode": "looped",
    "chunk": 5,
    "threads": 2,
    "precision": "float32",
    "versions": {"evomal": "0.1.0", "torch": "2.13.0", "numpy": "2.0.0", "python": "3.11.7"},
    "lr": 0.1,
    "initial_height": [2, 4],
}


def candidate(generation: int, index: int, size: int = 5) -> Candidate:
    """A candidate that depends on its place alone."""
    fitness = 1.0 / (1 + generation + 7 * index % 5)
    return Candidate(
        generation=generation,
        index=index,
        origin="crossover" if generation else "initial",
        parents=(index, (index + 1) % 5) if generation else (),
        genome="abs(log(mul(y, f)))",
        state=State.EVALUATED,
        fitness=fitness,
        sentence=f"trained to {fitness}",
        weights=tuple(math.sin(generation + index + place) for place in range(size)),
        fingerprint=f"{generation}-{index}",
        seconds={"training": 0.25, "weights": 0.5},
    )


def chunk_of(number: int, size: int = 5) -> list[Candidate]:
    """The candidates of a run's chunk: two chunks of five a generation."""
    generation, half = divmod(number, 2)
    return [candidate(generation, 5 * half + place, size) for place in range(5)]


def written(folder, chunks: int, *, begin: int = 0, size: int = 5) -> None:
    with RunStore.open(folder) if begin else RunStore.create(folder, SETTINGS) as store:
        for number in range(begin, chunks):
            assert store.write_chunk(number // 2, chunk_of(number, size)) == number


def bits(number: float) -> bytes:
    return struct.pack("d", number)


anything = st.floats(allow_nan=True, allow_infinity=True)
finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
outcomes = st.one_of(
    st.tuples(st.sampled_from([State.EVALUATED, State.CACHED, State.EQUIVALENT]), finite),
    st.tuples(st.sampled_from([state for state in State if state is not State.EVALUATED]), st.just(math.inf)),
)


@st.composite
def candidates(draw):
    state, fitness = draw(outcomes)
    return Candidate(
        generation=0,
        index=draw(st.integers(0, 2**63 - 1)),
        origin=draw(words),
        parents=tuple(draw(st.lists(st.integers(0, 2**63 - 1), max_size=3))),
        genome=draw(words),
        state=state,
        fitness=fitness,
        sentence=draw(st.text(st.characters(exclude_categories=["Cs"]))),
        weights=tuple(draw(st.lists(anything, max_size=8))),
        fingerprint=draw(st.none() | words),
        seconds=draw(st.dictionaries(words, st.floats(0, 1e300), max_size=3)),
    )


@given(st.lists(candidates(), min_size=1, max_size=5, unique_by=lambda row: row.index))
@hypothesis_settings(max_examples=60)
def test_every_bit_comes_back(tmp_path_factory, given_rows):
    folder = tmp_path_factory.mktemp("run")
    with RunStore.create(folder, SETTINGS) as store:
        store.write_chunk(0, given_rows)
    with RunStore.read(folder) as store:
        found = store.candidates()
    assert len(found) == len(given_rows)
    for row, original in zip(found, sorted(given_rows, key=lambda row: row.index), strict=True):
        assert replace(row, weights=()) == replace(original, weights=())
        assert bits(row.fitness) == bits(original.fitness)
        # All NaNs count as one.
        assert [repr(weight) for weight in row.weights] == [repr(weight) for weight in original.weights]
        assert row.seconds == original.seconds


def test_extreme_floats_come_back(tmp_path):
    extremes = (-0.0, 0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, 1 / 3)
    rows = [replace(candidate(0, place), fitness=value, weights=extremes) for place, value in enumerate(extremes)]
    with RunStore.create(tmp_path, SETTINGS) as store:
        store.write_chunk(0, rows)
        found = store.candidates()
    assert [bits(row.fitness) for row in found] == [bits(value) for value in extremes]
    assert {tuple(map(bits, row.weights)) for row in found} == {tuple(map(bits, extremes))}


def test_a_run_is_resumed_where_it_stopped(tmp_path):
    written(tmp_path / "run", 3)
    written(tmp_path / "run", 6, begin=3)
    written(tmp_path / "whole", 6)
    with RunStore.read(tmp_path / "run") as store, RunStore.read(tmp_path / "whole") as whole:
        assert store.dump() == whole.dump()
        assert store.settings == SETTINGS
        assert store.candidates() == tuple(row for number in range(6) for row in chunk_of(number))
        assert [(chunk.number, chunk.generation) for chunk in store.complete_chunks()] == [
            (number, number // 2) for number in range(6)
        ]
        assert store.complete_chunks()[3].indices == (5, 6, 7, 8, 9)
        assert store.created.endswith("+00:00")


def test_generations_are_summed_up(tmp_path):
    failed = replace(candidate(0, 2), state=State.DIVERGED, fitness=math.inf)
    with RunStore.create(tmp_path, SETTINGS) as store:
        assert summarised(store.candidates()) == ()
        store.write_chunk(0, [candidate(0, 0), candidate(0, 1), failed])
        store.write_chunk(1, [replace(failed, generation=1)])
        first, second = summarised(store.candidates())
    assert first.counts == {State.EVALUATED: 2, State.DIVERGED: 1}
    assert first.size == 3
    assert first.best == candidate(0, 1)
    assert first.seconds == {"training": 0.75, "weights": 1.5}
    assert second.best is None


def test_the_dump_is_without_times_and_notices_everything_else(tmp_path):
    def dump(name, row, settings=SETTINGS):
        with RunStore.create(tmp_path / name, settings) as store:
            store.write_chunk(0, [row])
            return store.dump()

    row = candidate(0, 0)
    first = dump("first", row)
    assert dump("slower", replace(row, seconds={"training": 9.0})) == first
    others = [
        replace(row, fitness=math.nextafter(row.fitness, 2)),
        replace(row, weights=(*row.weights[:-1], -row.weights[-1])),
        replace(row, sentence="other"),
        replace(row, fingerprint=None),
        replace(row, index=1),
    ]
    dumps = [dump(str(place), other) for place, other in enumerate(others)]
    dumps.append(dump("seed", row, SETTINGS | {"seed": 1}))
    assert len({first, *dumps}) == len(dumps) + 1
    kinds = [json.loads(line)["kind"] for line in first.splitlines()]
    assert kinds == ["settings", "chunk", "candidate"]


def test_a_chunk_is_recorded_whole_or_not_at_all(tmp_path):
    with RunStore.create(tmp_path, SETTINGS) as store:
        store.write_chunk(0, chunk_of(0))
        before = store.dump()
        for generation, rows, sentence in [
            (0, [], "at least 1 candidate but got 0"),
            (0, [candidate(0, 7), candidate(0, 3)], "candidate 3 of generation 0 is recorded already"),
            (0, [candidate(0, 7), candidate(0, 7)], "candidate 7 of generation 0 is recorded already"),
            (1, [candidate(1, 0), candidate(0, 8)], "a chunk of generation 1 got a candidate of 0"),
            (2, [candidate(2, 0)], "must be of generation 1 at most but got 2"),
        ]:
            with pytest.raises(InputError, match=sentence):
                store.write_chunk(generation, rows)
        assert store.dump() == before


def test_a_complete_run_takes_nothing_more(tmp_path):
    with RunStore.create(tmp_path, SETTINGS) as store:
        assert store.ending is None
        with pytest.raises(InputError, match="reason must be a string of 1 to 10000 characters but got ''"):
            store.finish("")
        store.finish("all generations done")
        with pytest.raises(InputError, match=r"the run is complete \(all generations done\)"):
            store.write_chunk(0, chunk_of(0))
        with pytest.raises(InputError, match="the run is complete"):
            store.finish("again")
    with RunStore.read(tmp_path) as store:
        assert store.ending == "all generations done"
        assert json.loads(store.dump().splitlines()[-1]) == {"kind": "ending", "reason": "all generations done"}


def test_a_complete_run_with_other_settings_can_be_continued(tmp_path):
    with RunStore.create(tmp_path, SETTINGS) as store:
        store.write_chunk(0, chunk_of(0))
        created = store.created
        store.finish("the one generation is done")
        store.change_settings({**SETTINGS, "budgets": {"generations": 2}})
        store.write_chunk(1, chunk_of(2))
    with RunStore.read(tmp_path) as store:
        assert (store.ending, store.created, len(store.complete_chunks())) == (None, created, 2)
        assert store.settings == {**SETTINGS, "budgets": {"generations": 2}}
        with pytest.raises(InputError, match="was opened for reading only"):
            store.change_settings(SETTINGS)


def test_a_reader_follows_a_writer_and_changes_nothing(tmp_path):
    with RunStore.create(tmp_path, SETTINGS) as writer, RunStore.read(tmp_path) as reader:
        for number in range(4):
            writer.write_chunk(number // 2, chunk_of(number))
            assert len(reader.candidates()) == 5 * (number + 1)
        with pytest.raises(InputError, match="was opened for reading only"):
            reader.write_chunk(2, chunk_of(4))
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._connection.execute("DELETE FROM candidates")


def test_readers_beside_a_writer_see_whole_chunks(tmp_path):
    RunStore.create(tmp_path, SETTINGS).close()
    seen, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            with RunStore.read(tmp_path) as store:
                kinds = Counter(json.loads(line)["kind"] for line in store.dump().splitlines())
                seen.append((kinds["candidate"], kinds["chunk"]))

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            with RunStore.open(tmp_path) as store:
                for number in range(1000):
                    store.write_chunk(number // 2, chunk_of(number, 100))
                    # How often readers come in between is up to the scheduler, so until they have.
                    if number >= 30 and len(set(seen)) > 2:
                        break
        finally:
            stop.set()
        for reader in readers:
            reader.result()
    assert len(set(seen)) > 2
    assert all(candidates == 5 * chunks for candidates, chunks in seen)


def test_an_unfinished_commit_is_not_seen(tmp_path):
    written(tmp_path, 2)
    with RunStore.open(tmp_path) as writer, RunStore.read(tmp_path) as reader:
        writer._connection.execute("BEGIN IMMEDIATE")
        writer._connection.execute("DELETE FROM candidates")
        assert writer.candidates() == ()
        assert len(reader.candidates()) == 10
        writer._connection.execute("ROLLBACK")
        assert len(writer.candidates()) == 10


def test_the_folder_is_checked(tmp_path):
    with pytest.raises(InputError, match=r"holds no run, as there is no run\.sqlite in it"):
        RunStore.open(tmp_path)
    with pytest.raises(InputError, match="holds no run"):
        RunStore.read(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()
    written(tmp_path / "run", 1)
    with pytest.raises(InputError, match="exists already"):
        RunStore.create(tmp_path / "run", SETTINGS)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file, but a folder"):
        RunStore.create(tmp_path / "file", SETTINGS)
    with pytest.raises(InputError, match="cannot be created: Not a directory"):
        RunStore.create(tmp_path / "file" / "run", SETTINGS)
    with pytest.raises(InputError, match="is not a valid folder name: embedded null byte"):
        RunStore.create(tmp_path / "a\0b", SETTINGS)
    store = RunStore.read(tmp_path / "run")
    store.close()
    store.close()
    with pytest.raises(EvomalError, match="cannot be used"):
        store.candidates()


def test_a_folder_may_have_any_name(tmp_path):
    folder = tmp_path / "50% of a? #run;mode=ro & ü"
    written(folder, 1)
    with RunStore.read(folder) as store:
        assert len(store.candidates()) == 5
    assert {path.name for path in folder.iterdir()} == {"run.sqlite", ".run.lock"}


def test_the_journal_and_syncs_are_as_designed(tmp_path):
    with RunStore.create(tmp_path, SETTINGS) as store:
        values = {
            name: store._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "trusted_schema")
        }
    assert values == {"journal_mode": "delete", "synchronous": 2, "foreign_keys": 1, "trusted_schema": 0}


@pytest.mark.parametrize("key", ["seed", "task", "device", "population_mode", "chunk", "threads", "precision"])
def test_settings_must_say_all_that_can_change_a_float(tmp_path, key):
    with pytest.raises(InputError, match=f"must have '{key}'"):
        RunStore.create(tmp_path / "run", {name: value for name, value in SETTINGS.items() if name != key})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", [math.nan, math.inf, {1: 2}, object(), {"a": [{None: 1}]}, np.int64(3)])
def test_settings_must_be_recordable(tmp_path, value):
    with pytest.raises(InputError, match="the settings of a run must"):
        RunStore.create(tmp_path / "run", SETTINGS | {"extra": value})


def test_differences_name_key_and_both_values(tmp_path):
    given = json.loads(json.dumps(SETTINGS))
    with RunStore.create(tmp_path, SETTINGS) as store:
        assert store.differences(SETTINGS | {"initial_height": (2, 4)}) == ()
        given["threads"] = 4
        given["task"]["options"] = {"hidden": 64.0, "a.b": 1}
        given["versions"]["torch"] = "2.14.0"
        given["patience"] = None
        del given["lr"]
        found = store.differences(given)
    assert found == (
        Difference("lr", "0.1", None),
        Difference("patience", None, "null"),
        Difference('task.options."a.b"', None, "1"),
        Difference("task.options.hidden", "64", "64.0"),
        Difference("threads", "2", "4"),
        Difference("versions.torch", '"2.13.0"', '"2.14.0"'),
    )
    assert str(found[0]) == "lr was 0.1 but is not set"
    assert str(found[4]) == "threads was 2 but is 4"


def test_versions_are_those_that_run():
    assert versions()["numpy"] == np.__version__
    assert {"evomal", "torch", "numpy", "numba", "python"} <= versions().keys()


def test_a_candidate_must_make_sense():
    good = candidate(0, 0)
    for change, sentence in [
        ({"index": -1}, "index must be at least 0 but got -1"),
        ({"index": 2**63}, "index must be at most 9223372036854775807 but got 9223372036854775808"),
        ({"generation": 1.5}, "generation must be a whole number but got 1.5"),
        ({"parents": (True,)}, "a parent must be a whole number"),
        ({"genome": ""}, "genome must be a string of 1 to 1000000 characters but got ''"),
        ({"genome": "\ud800"}, "genome must be proper Unicode"),
        ({"state": None, "fitness": math.inf}, "state must be one of evaluated, cached, .* but got None"),
        ({"weights": ("1",)}, "a weight must be a number but got '1'"),
        ({"seconds": {"training": -1.0}}, "seconds of training must be finite and at least 0 but got -1.0"),
        ({"weights": (0.0,) * 100_001}, "at most 100000 weights but got 100001"),
    ]:
        with pytest.raises(InputError, match=sentence):
            candidate_row(replace(good, **change), 0)


def test_a_sentence_may_quote_anything(tmp_path):
    row = replace(candidate(0, 0), sentence="\ud800 \0 " + "x" * 20_000)
    with RunStore.create(tmp_path, SETTINGS) as store:
        store.write_chunk(0, [row])
        (found,) = store.candidates()
    assert found.sentence == ("\\ud800 \0 " + "x" * 20_000)[:9_999] + "…"
    assert replace(found, sentence=row.sentence) == row
