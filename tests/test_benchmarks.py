"""Benchmarks that are too long for tests, in a small version."""

import argparse
import dataclasses
import importlib
from pathlib import Path

import pytest
import torch

from evomal.tasks.task import Task

ROOT = Path(__file__).parents[1]


def test_the_benchmark_of_streaming_measures_both_trainings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    streaming = importlib.import_module("streaming")
    at = streaming.Stream.at
    found = streaming.rows_of(torch.device("cpu"), "float32", [0, 1], width=2, batch=4, rows=40, steps=6)
    assert [row[:2] for row in found] == [("float32", "0"), ("float32", "1")]
    assert all(0 <= float(share.rstrip("%")) <= 100 for row in found for share in row[5:])
    assert streaming.Stream.at is at


def line(variant, seed, cost, advised="best"):
    return {
        "variant": variant, "time": 60.0, "task": "outliers", "seed": seed, "preset": "quick", "seconds": 59.0 + seed,
        "generations": 9, "recommended": advised, "test": {"best": {"rate": 1.0, "test": [cost, cost]}},
    }  # fmt: skip


def test_the_ablation_compares_variants_with_the_whole_search_seed_by_seed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    ablation = importlib.import_module("ablation")
    lines = [line("full", seed, cost) for seed, cost in enumerate((0.1, 0.2, 0.4))]
    lines += [line("without rates", seed, 2 * cost, "mae") for seed, cost in enumerate((0.1, 0.2))]
    lines += [{**line("without diversity", 0, 1.0, None), "test": {}}]
    lines += [{"task": "outliers", "rivals": {"mse": {"test": [0.8]}, "mae": {"test": [0.3, 0.5]}}}]
    full, rates, diversity = ablation.summarise(lines)
    assert full == ("outliers, quick, 60 s", "full", "3", "60", "9", "0.2, 0.4", "", "0.2, 0.4", "")
    assert rates[:6] == ("outliers, quick, 60 s", "without rates", "2", "60", "9", "0.3, 0.4")
    assert rates[6].startswith("2.000 (2.000 to 2.000),")
    assert rates[7] == "0.4, 0.4"
    assert rates[8].startswith("2.828 (")
    assert diversity[5:] == ("0.8, 0.8", "8.000, n = 1", "0.8, 0.8", "8.000, n = 1")
    changes = [{"threads": "1", "max_time": str(place)} for place in range(len(lines))]
    changes[3]["tried_rates"] = "1"
    options = argparse.Namespace(table=Path("x.json"), commit="c", hardware="h", note=[])
    table = ablation.table_of([{**one, "changes": own} for one, own in zip(lines, changes, strict=True)], options)
    command = "python benchmarks/ablation.py --task outliers --preset quick --time 60 --seeds SEEDS --set threads=1"
    assert (table.command, table.rows[0]) == (command, full)


def test_every_part_of_the_search_can_be_switched_off_by_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    ablation, searches = importlib.import_module("ablation"), importlib.import_module("searches")
    for preset in ("quick", "thorough"):
        whole = searches.settings_of(preset, "cpu", {})
        found = [searches.settings_of(preset, "cpu", changes) for changes in ablation.VARIANTS.values()]
        assert found[0] == whole
        assert len({*found}) == len(ablation.VARIANTS)
    assert not ablation.matters("without resplits", searches.TASKS["outliers"]())


def test_an_ablation_leaves_out_what_changes_nothing_on_its_task(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    ablation = importlib.import_module("ablation")
    rows = ablation.FEWEST_ROWS
    features, targets = torch.rand(5 * rows, 2), torch.rand(5 * rows, 1)
    drawn = Task.from_arrays(features, targets, kind="regression", model=lambda: torch.nn.Linear(2, 1))
    kept = dataclasses.replace(drawn, exchangeable=False)
    assert len(drawn.validation) >= rows
    assert len(kept.validation) >= rows
    for task, matters in ((drawn, False), (kept, True)):
        assert ablation.matters("without final rows", task) == matters
        assert ablation.matters("without resplits", task) != matters
