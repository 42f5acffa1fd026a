"""Benchmarks that are too long for tests, in a small version."""

import importlib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


def test_the_benchmark_of_streaming_measures_both_trainings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    streaming = importlib.import_module("streaming")
    at = streaming.Stream.at
    found = streaming.rows_of(torch.device("cpu"), "float32", [0, 1], width=2, batch=4, rows=40, steps=6)
    assert [row[:2] for row in found] == [("float32", "0"), ("float32", "1")]
    assert all(0 <= float(share.rstrip("%")) <= 100 for row in found for share in row[5:])
    assert streaming.Stream.at is at
