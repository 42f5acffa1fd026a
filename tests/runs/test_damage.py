"""Damage is noticed, named, and what is left is counted; no damage brings anything else than a refusal."""

import re
import shutil
import sqlite3

import pytest

from evomal.errors import InputError
from evomal.randomness import generator
from evomal.runs import RunStore
from evomal.runs.canonical import checksum
from evomal.runs.database import column_names
from tests.runs.test_store import written

SAVED = re.compile(r"(\d+) generations? and (\d+) candidates? of it can still be read and verified")


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """A record of 12 generations and 120 candidates, some 30 pages, and its dump."""
    folder = tmp_path_factory.mktemp("intact")
    written(folder, 24, size=40)
    with RunStore.read(folder) as store:
        return folder / "run.sqlite", store.dump()


def refusal(folder, kind=InputError) -> str:
    """The sentence with which both ways of opening refuse, which name the file and leave no lock."""
    sentences = []
    for opened in (RunStore.open, RunStore.read, RunStore.open):
        with pytest.raises(kind) as caught:
            opened(folder)
        sentences.append(str(caught.value))
    assert all(str(folder / "run.sqlite") in sentence and "\n" not in sentence for sentence in sentences)
    return sentences[0]


def is_refused_or_equal(opened, folder, dump) -> bool:
    """Whether it was refused, by name; what is not refused must hold every bit."""
    try:
        with opened(folder) as store:
            found = store.dump()
    except InputError as error:
        sentence = str(error)
    else:
        assert found == dump
        return False
    assert str(folder / "run.sqlite") in sentence
    return True


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.9999])
def test_a_truncated_record_is_refused(intact, tmp_path, share):
    content = intact[0].read_bytes()
    (tmp_path / "run.sqlite").write_bytes(content[: int(share * len(content))])
    assert refusal(tmp_path)


def test_what_was_saved_is_counted(intact, tmp_path):
    shutil.copy(intact[0], tmp_path)
    connection = sqlite3.connect(tmp_path / "run.sqlite")
    connection.execute("UPDATE candidates SET fitness = '0.5' WHERE generation = 3")
    connection.execute("UPDATE candidates SET sentence = 'changed' WHERE generation = 7 AND position = 2")
    connection.commit()
    connection.close()
    sentence = refusal(tmp_path)
    assert "a row of its table candidates does not match its checksum" in sentence
    assert SAVED.search(sentence).groups() == ("11", "109")


def test_a_broken_page_leaves_what_lies_around_it(intact, tmp_path):
    content = bytearray(intact[0].read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(4096)
    (tmp_path / "run.sqlite").write_bytes(content)
    generations, candidates = map(int, SAVED.search(refusal(tmp_path)).groups())
    assert 8 <= generations <= 12
    assert 80 <= candidates < 120


def test_missing_rows_are_noticed(intact, tmp_path):
    for table, sentence in [
        ("candidates WHERE generation = 11 AND position = 9", "chunk 23 is incomplete"),
        ("candidates WHERE chunk = 4", "chunk 4 is incomplete"),
        ("candidates", "chunk 0 is incomplete"),
        ("chunks WHERE number = 23", "a candidate belongs to no chunk"),
        ("chunks WHERE number = 0", "a candidate belongs to no chunk"),
        ("settings", "its settings are missing"),
    ]:
        shutil.copy(intact[0], tmp_path)
        connection = sqlite3.connect(tmp_path / "run.sqlite")
        connection.execute(f"DELETE FROM {table}")
        connection.commit()
        connection.close()
        assert sentence in refusal(tmp_path)


def changed_with_a_true_checksum(path, table, change, clause="") -> None:
    """What somebody can do who knows how evomal makes its checksums."""
    connection = sqlite3.connect(path)
    connection.text_factory = lambda text: text.decode(errors="replace")
    connection.execute(f"UPDATE {table} SET {change} {clause}")
    columns = ", ".join(column_names(table))
    for number, *values in connection.execute(f"SELECT rowid, {columns} FROM {table}").fetchall():
        plain = [value if isinstance(value, int | str | None) else str(value) for value in values]
        connection.execute(f"UPDATE {table} SET checksum = ? WHERE rowid = ?", (checksum([table, *plain]), number))
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("candidates", "fitness = 'nan'"),
        ("candidates", "fitness = '-inf'"),
        ("candidates", "fitness = '1e400'"),
        ("candidates", "fitness = '0.50'"),
        ("candidates", "fitness = x'00'"),
        ("candidates", "weights = '[NaN]'"),
        ("candidates", "weights = '[1.0'"),
        ("candidates", "weights = '[1]'"),
        ("candidates", "weights = '{}'"),
        ("candidates", "weights = 7"),
        ("candidates", f"weights = '{'[' * 100_000}'"),
        ("candidates", f"weights = '[{'9' * 10_000}]'"),
        ("candidates", "parents = '[-1]'"),
        ("candidates", "parents = '[1.5]'"),
        ("candidates", "parents = '3'"),
        ("candidates", 'seconds = \'{"a":1.0,"a":2.0}\''),
        ("candidates", "seconds = '[]'"),
        ("candidates", "state = 'lost'"),
        ("candidates", "state = 'diverged'"),
        ("candidates", "position = -1 - position"),
        ("candidates", "genome = ''"),
        ("candidates", "genome = CAST(x'ff' AS TEXT)"),
        ("candidates", "sentence = hex(zeroblob(20000))"),
        ("chunks", "generation = 'x'"),
        ("chunks", "generation = 5"),
        ("chunks", "number = number + 1"),
        ("chunks", "candidates = 9000000000000000000"),
        ("settings", "content = '[]'"),
        ("settings", "content = '{\"seed\":NaN}'"),
        ("settings", "content = 'no JSON'"),
        ("settings", "content = x'ff'"),
        ("settings", f"content = '{'{' * 100_000}'"),
    ],
)
def test_no_content_gets_through_that_evomal_does_not_write(tmp_path, table, change):
    written(tmp_path, 2)
    order = "WHERE number = (SELECT MAX(number) FROM chunks)" if "number + 1" in change else ""
    changed_with_a_true_checksum(tmp_path / "run.sqlite", table, change, order)
    assert "is damaged (" in refusal(tmp_path)


def test_flipped_bits_are_refused_or_hit_nothing(intact, tmp_path):
    path, dump = intact
    rng = generator(0, "bits")
    content = path.read_bytes()
    refused = 0
    for _ in range(50):
        flipped = bytearray(content)
        flipped[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        (tmp_path / "run.sqlite").write_bytes(flipped)
        refused += is_refused_or_equal(RunStore.open, tmp_path, dump)
    assert refused >= 35


def test_a_flipped_bit_anywhere_in_the_header_is_refused_or_harmless(intact, tmp_path):
    path, dump = intact
    content = path.read_bytes()
    for place in range(100):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        (tmp_path / "run.sqlite").write_bytes(flipped)
        is_refused_or_equal(RunStore.read, tmp_path, dump)
    assert {entry.name for entry in tmp_path.iterdir()} == {"run.sqlite"}


def test_noise_is_refused(tmp_path):
    (tmp_path / "run.sqlite").write_bytes(generator(0, "noise").bytes(50_000))
    assert "is not the record of an evomal run" in refusal(tmp_path)
    (tmp_path / "run.sqlite").write_bytes(b"")
    assert "is empty" in refusal(tmp_path)


def test_another_programs_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "run.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs (title TEXT)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    assert "is not the record of an evomal run" in refusal(tmp_path)
    assert path.read_bytes() == before


def test_a_newer_record_is_refused(intact, tmp_path):
    shutil.copy(intact[0], tmp_path)
    connection = sqlite3.connect(tmp_path / "run.sqlite")
    connection.execute("PRAGMA user_version = 5")
    connection.close()
    assert "is of version 5 but this evomal reads versions 1 to 4" in refusal(tmp_path)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW generations AS SELECT * FROM candidates",
        "CREATE TRIGGER greedy AFTER INSERT ON chunks BEGIN DELETE FROM candidates; END",
        "CREATE TABLE more (x)",
        "CREATE INDEX faster ON candidates (state)",
        "ALTER TABLE candidates ADD COLUMN x",
        "DROP TABLE ending",
        "DROP TABLE candidates; CREATE VIEW candidates AS "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "ANALYZE",
    ],
)
def test_other_tables_views_and_triggers_are_refused(intact, tmp_path, statement):
    shutil.copy(intact[0], tmp_path)
    connection = sqlite3.connect(tmp_path / "run.sqlite")
    connection.executescript(statement)
    connection.close()
    assert "its tables are not those of an evomal run" in refusal(tmp_path)


def test_a_huge_value_is_refused(intact, tmp_path):
    shutil.copy(intact[0], tmp_path)
    connection = sqlite3.connect(tmp_path / "run.sqlite")
    connection.execute("UPDATE settings SET content = zeroblob(70000000)")
    connection.commit()
    connection.close()
    assert "too big" in refusal(tmp_path)


def test_a_journal_that_names_further_files_is_refused(intact, tmp_path):
    shutil.copy(intact[0], tmp_path)
    (tmp_path / "run.sqlite-journal").write_bytes(bytes(512) + bytes.fromhex("d9d505f920a163d7"))
    for opened in (RunStore.open, RunStore.read):
        with pytest.raises(InputError, match="belongs to several databases"):
            opened(tmp_path)


def test_what_is_no_file_is_refused(tmp_path):
    (tmp_path / "run.sqlite").mkdir()
    assert "must be a regular file but is a folder" in refusal(tmp_path)
    (tmp_path / "run.sqlite").rmdir()
    (tmp_path / "run.sqlite").symlink_to(tmp_path / "nowhere")
    assert "must be a regular file but is a link" in refusal(tmp_path)
