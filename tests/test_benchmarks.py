"""Benchmarks that are too long for tests, in a small version."""

import argparse
import dataclasses
import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from evomal.campaigns.tables import MeasuredTable
from evomal.engine import Engine
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


def test_rungs_rank_losses_by_the_costs_that_a_search_would_see(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    fitness = importlib.import_module("fitness")
    losses, seeds, rates = 6, 12, len(fitness.RATES)
    costs = np.zeros((losses, 2, seeds, rates))
    costs[:, 0] = np.array([0, 1, 2, 3, 4, np.inf])[:, None, None]  # the short rung
    costs[:, 1] = np.array([9, 8, 7, 0, 0, 0])[
        :, None, None
    ]  # the long one, which the best half of the finite ones reaches
    costs[:, :, :, 0] += 100.0
    ladder = fitness.Ladder(((10, 1), (50, 2)), rates=3, share=1 / 2)
    order, steps = ladder.ranked(costs, [10, 50])
    assert order == [2, 1, 0, 3, 4, 5]
    assert steps == losses * 3 * 10 + 3 * 2 * 2 * 50
    whole, top, _ = fitness.agreement(order, np.array([2.0, 1.0, 0.0, 3.0, 4.0, 5.0]))
    assert (whole, top) == pytest.approx((1, 1))
    found = {
        "truths": [[2.0, 1.0, 0.0, 3.0, 4.0, 5.0]], "paper": [0, 1, 2, 3, 4, 5], "horizons": [10, 50], "costs": costs,
    }  # fmt: skip
    paper, own = fitness.ranked(found, {"own": ladder})
    assert (own.whole, own.steps) == pytest.approx((1, steps / losses))
    assert paper.whole < 1
    refused = [False, False, True, False, False, False]
    _, own, last = fitness.ranked({**found, "inadmissible": refused}, {"own": ladder})
    assert last.whole < own.whole  # the best one is refused


def test_a_table_of_the_fitness_has_pools_of_one_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    fitness = importlib.import_module("fitness")
    costs = np.broadcast_to(np.arange(4.0)[:, None, None, None], (4, 1, 12, len(fitness.RATES)))
    found = {
        "task": "diabetes", "pool": "all", "hardware": "a machine", "losses": ["a", "b", "c", "d"],
        "truths": [[0, 1, 2, 3], [0, 2, 1, 9], [0, 1, 2, 3]], "paper": [3, 2, 1, 0], "horizons": [10], "costs": costs,
    }  # fmt: skip
    ladders = {"own": fitness.Ladder(((10, 2),), rates=5)}
    exact = {**found, "task": "mnist-mlp", "truths": [[0, 1, 2, 3]] * 3}
    fitness.write_table([found, exact], ladders, "c", ["a note"], tmp_path / "t.json")
    table = MeasuredTable.model_validate_json((tmp_path / "t.json").read_text())
    assert table.columns == ("fitness", "steps per loss", "MNIST, clean", "Diabetes")
    first, own, last = (row[:2] for row in table.rows)
    again = "one truth, beside the mean of the others"
    assert (first, own, last) == (("the paper's", "500"), ("own", "100"), (again, "46,000"))
    assert table.rows[2][2].startswith("1.00, 1.00")
    assert table.rows[2][3].startswith("0.83, 0.83")
    assert table.rows[0][2].startswith("-1.00, -1.00")
    assert table.rows[1][3].startswith("1.00, 1.00")
    assert "--pool all --presets --truths 3 " in table.command
    fewer = {**exact, "truths": exact["truths"][:2]}
    fitness.write_table([found, fewer], ladders, "c", [], tmp_path / "t.json")
    table = MeasuredTable.model_validate_json((tmp_path / "t.json").read_text())
    assert "the mean of 2 to 3 such measurements" in table.about
    assert "--truths N " in table.command
    assert table.n.startswith("4 losses")
    with pytest.raises(ValueError, match="too many values"):
        fitness.write_table([found, {**found, "pool": "admissible"}], ladders, "c", [], tmp_path / "u.json")


def test_the_pool_of_all_trees_has_losses_that_a_search_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    fitness = importlib.import_module("fitness")
    task = fitness.TASKS["diabetes"]()
    pools = {
        name: fitness.pool(task, 5, "cpu", str(tmp_path / name), of=name, first_trees=200)
        for name in ("admissible", "all")
    }
    assert [len(found) for found in pools.values()] == [5, 5]
    engine = Engine(task, seed=0)
    refused = {
        name: sum(reason != "" for one in found for reason in engine.inadmissible([one.expression], [one.edge_weights]))
        for name, found in pools.items()
    }
    assert refused["admissible"] == 0 < refused["all"]
