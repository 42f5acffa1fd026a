"""How large a record may be: at the limit it is written and read, beyond it one sentence refuses it at once."""

import os
import time

import pytest

from evomal.errors import EvomalError, InputError
from evomal.runs import RunStore
from evomal.runs.database import MAX_BYTES
from tests.runs.test_store import chunk_of, written


@pytest.fixture
def ten_rows(monkeypatch):
    for module in ("database", "store", "verification"):
        monkeypatch.setattr(f"evomal.runs.{module}.MAX_ROWS", 10)


def test_as_many_candidates_as_may_be_are_recorded_and_read(tmp_path, ten_rows):
    written(tmp_path, 2)
    with RunStore.open(tmp_path) as store:
        assert len(store.candidates()) == 10
        with pytest.raises(EvomalError, match=r"run\.sqlite: a record has at most 10 candidates, and this one is full"):
            store.write_chunk(1, chunk_of(2))
        assert len(store.candidates()) == 10


def test_a_record_with_more_rows_is_refused(tmp_path, monkeypatch):
    written(tmp_path, 3)
    monkeypatch.setattr("evomal.runs.database.MAX_ROWS", 10)
    with pytest.raises(InputError, match="must have at most 10 rows in its table candidates but has 15"):
        RunStore.read(tmp_path)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    written(tmp_path, 1)
    os.truncate(tmp_path / "run.sqlite", MAX_BYTES + 4096)
    began = time.process_time()
    with pytest.raises(InputError, match=r"must have at most 1,073,741,824 bytes but has 1,073,745,920"):
        RunStore.read(tmp_path)
    assert time.process_time() - began < 5


def test_a_file_does_not_grow_beyond_what_can_be_read(tmp_path, monkeypatch):
    written(tmp_path, 1)
    monkeypatch.setattr("evomal.runs.database.MAX_BYTES", size := (tmp_path / "run.sqlite").stat().st_size + 8192)
    with RunStore.open(tmp_path) as store:
        before = store.dump()
        with pytest.raises(EvomalError, match=f"must have at most {size:,} bytes and cannot grow any further"):
            store.write_chunk(0, chunk_of(1, size=5000))
        assert store.dump() == before
    assert (tmp_path / "run.sqlite").stat().st_size <= size
