"""Trials outside the generations: written exactly, in order, by whole groups, and noticed when they are damaged."""

import contextlib
import math
import sqlite3
from dataclasses import replace

import pytest

from evomal.engine import Fitness
from evomal.errors import InputError
from evomal.methods import Failure
from evomal.runs import RunStore, database
from evomal.runs.canonical import checksum
from evomal.runs.rows import RecordedTrial
from tests.runs.test_store import SETTINGS, chunk_of, written

RIVALS = (
    RecordedTrial(stage="rivals", loss="mse", seed=0, score=0.1 + 0.2, sentence="trained and evaluated", seconds=0.5),
    RecordedTrial(
        stage="rivals", loss="mae", seed=0, score=math.inf, sentence="the training loss was not finite by step 50"
    ),
)
FINAL = (
    RecordedTrial(stage="final", loss="mse", seed=3000, score=-0.0, sentence="trained and evaluated"),
    RecordedTrial(stage="final", loss="1:2", seed=3000, score=5e-324, sentence="trained and evaluated"),
)
LEAD = RecordedTrial(
    stage="lead", loss="mse", seed=3000, score=0.25, sentence="trained and evaluated", left_out=(0.25, 0.1 + 0.2)
)


def edited(folder, *statements):
    connection = sqlite3.connect(folder / "run.sqlite")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_every_bit_comes_back_in_order(tmp_path):
    with RunStore.create(tmp_path, SETTINGS) as store:
        assert store.trials() == ()
        store.write_trials(RIVALS)
        store.write_chunk(0, chunk_of(0))
        store.write_trials(FINAL)
    with RunStore.read(tmp_path) as store:
        assert store.trials() == (*RIVALS, *FINAL)
        assert [repr(trial.score) for trial in store.trials()] == ["0.30000000000000004", "inf", "-0.0", "5e-324"]
        assert store.trials()[0].seconds == 0.5
        lines = [line for line in store.dump().splitlines() if '"kind":"trial"' in line]
    assert lines[1] == (
        '{"kind":"trial","loss":"mae","rate":"1.0","score":null,"seed":0,'
        '"sentence":"the training loss was not finite by step 50","stage":"rivals","steps":0}'
    )
    assert "seconds" not in "".join(lines)


def test_a_resumed_search_has_its_finals_at_its_end(tmp_path):
    with RunStore.create(tmp_path, SETTINGS) as store:
        store.write_trials(RIVALS)
        store.write_chunk(0, chunk_of(0))
        store.write_trials(FINAL)
        store.write_chunk(0, chunk_of(1))
        assert store.trials() == RIVALS
        store.write_trials(FINAL)
        store.finish("done")
        assert store.trials() == (*RIVALS, *FINAL)
        with pytest.raises(InputError, match="the run is complete"):
            store.write_trials(FINAL)


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE trials SET score = '0.1' WHERE number = 0", "a row of its table trials does not match its checksum"),
        ("DELETE FROM trials WHERE number = 0", "its trial 0 is missing"),
        ("UPDATE trials SET sentence = X'00' WHERE number = 1", "a row of its table trials does not match its"),
    ],
)
def test_damage_is_noticed(tmp_path, statement, sentence):
    written(tmp_path, 2)
    with RunStore.open(tmp_path) as store:
        store.write_trials(RIVALS)
    edited(tmp_path, statement)
    with pytest.raises(InputError) as caught:
        RunStore.read(tmp_path)
    assert sentence in str(caught.value)
    assert "1 generation and 10 candidates of it can still be read" in str(caught.value)


def as_version(folder, version):
    """Write the record anew, as an older version of evomal would have."""
    path = folder / "run.sqlite"
    kept = {}
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for table in database._TABLES:
            names = ", ".join(database.column_names(table, version))
            kept[table] = [list(row) for row in connection.execute(f"SELECT {names} FROM {table} ORDER BY rowid")]
    path.unlink()
    if version == 1:
        del kept["trials"]
    digests = {}
    for row in kept["candidates"]:
        digests.setdefault(row[2], []).append(checksum(["candidates", *row]))
    for row in kept["chunks"]:
        row[3] = checksum(digests[row[0]])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {database.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        for table, rows in kept.items():
            connection.execute(database._definition(table, version))
            for row in rows:
                marks = ", ".join("?" * (len(row) + 1))
                connection.execute(f"INSERT INTO {table} VALUES ({marks})", (*row, checksum([table, *row])))
        connection.commit()


@pytest.mark.parametrize("version", [1, 2])
def test_a_record_of_an_earlier_version_is_read_but_not_resumed(tmp_path, version):
    written(tmp_path, 2)
    with RunStore.open(tmp_path) as store:
        store.write_trials(RIVALS)
    as_version(tmp_path, version)
    with RunStore.read(tmp_path) as store:
        assert store.trials() == (() if version == 1 else RIVALS)
        assert len(store.candidates()) == 10
        assert store.dump().count('"kind":"candidate"') == 10
    with pytest.raises(InputError) as caught:
        RunStore.open(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'run.sqlite'}: is of version {version}, which can be read but not continued: "
        "this evomal continues versions 3 and 4"
    )


def test_a_record_of_version_3_is_continued_as_it_was_begun(tmp_path):
    written(tmp_path, 2)
    as_version(tmp_path, 3)
    with RunStore.open(tmp_path) as store:
        store.write_trials([*FINAL, LEAD])
    with RunStore.read(tmp_path) as store:
        assert store.trials() == (*FINAL, replace(LEAD, left_out=()))
        assert "left_out" not in store.dump()
    with contextlib.closing(sqlite3.connect(tmp_path / "run.sqlite")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)


def test_scores_without_each_block_of_rows_come_back(tmp_path):
    with RunStore.create(tmp_path, SETTINGS) as store:
        store.write_trials([LEAD])
    with RunStore.read(tmp_path) as store:
        assert store.trials() == (LEAD,)
        assert '"left_out":[0.25,0.30000000000000004]' in store.dump()


def test_a_record_without_the_table_is_damaged(tmp_path):
    written(tmp_path, 2)
    edited(tmp_path, "DROP TABLE trials")
    with pytest.raises(InputError, match="its tables are not those of an evomal run"):
        RunStore.read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stage": "semi-final"}, "stage must be one of rivals, rates, final, lead but got 'semi-final'"),
        ({"score": math.nan}, "score must be a finite number, or inf where there is none, but got nan"),
        ({"score": -math.inf}, "score must be a finite number, or inf where there is none, but got -inf"),
        ({"seconds": -1.0}, "seconds must be finite and at least 0 but got -1.0"),
        ({"seed": -1}, "seed must be at least 0 but got -1"),
        ({"left_out": (0.5, math.inf)}, "a score in left_out must be a finite number but got inf"),
        ({"loss": ""}, "loss must be a string of 1 to 1000 characters but got ''"),
    ],
)
def test_what_cannot_be_a_trial(changes, sentence):
    with pytest.raises(InputError) as caught:
        replace(RIVALS[0], **changes)
    assert str(caught.value) == sentence


def test_what_a_training_came_to():
    assert RecordedTrial.of("final", "mse", 3000, Fitness(0.5)).sentence == "trained and evaluated"
    lost = RecordedTrial.of("final", "mse", 3000, Fitness(math.inf, "diverged", "not finite"))
    assert (lost.score, lost.sentence) == (math.inf, "not finite")
    failed = RecordedTrial.of("final", "mse", 3000, Failure("its worker died"))
    assert (failed.score, failed.sentence) == (math.inf, "evaluate failed: its worker died")
