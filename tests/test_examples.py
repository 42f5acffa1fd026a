"""The examples use public names only, and each of them runs, in a small version."""

import ast
import functools
import importlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import evomal
from tests.example_tasks import SMALL
from tests.protocols import ONE_TRAINING

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture
def example(monkeypatch):
    """Imports an example as Python does when it runs the file: its folder comes first on the path."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_imports_public_names_only(path):
    hidden = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            hidden += [alias.name for alias in node.names if alias.name.startswith("evomal.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "evomal":
            public = importlib.import_module(node.module).__all__
            hidden += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in public]
    assert hidden == []


def test_planted_outliers_are_in_the_training_targets_only(example):
    task = example("planted").outliers()
    assert [len(part) for part in (task.train, task.validation, task.test)] == [600, 600, 600]
    assert float(task.train.targets.std()) > 2.5
    assert float(task.validation.targets.std()) == pytest.approx(1, abs=0.1)
    assert torch.equal(task.train.targets, example("planted").outliers().train.targets)


def test_planted_labels_are_wrong_in_the_training_part_only(example):
    task = example("planted").wrong_labels()
    accuracies = []
    for part in (task.train, task.validation):
        fitted = torch.linalg.lstsq(torch.tanh(part.inputs), nn.functional.one_hot(part.targets, 4).float()).solution
        accuracies.append(float(((torch.tanh(part.inputs) @ fitted).argmax(1) == part.targets).float().mean()))
    assert accuracies[0] < 0.75 < 0.85 < accuracies[1]


def test_the_demo(example, monkeypatch, tmp_path, capsys):
    demo = example("demo")
    monkeypatch.setattr("sys.argv", ["demo.py", str(tmp_path)])
    small = {
        **ONE_TRAINING,
        "population": 4,
        "generations": 1,
        "meta_steps": 2,
        "training_steps": 5,
        "final_steps": 5,
        "finalists": 1,
    }
    monkeypatch.setattr(demo, "SEARCH", {**demo.SEARCH, **small})
    monkeypatch.setattr(demo, "VERDICT", {**demo.VERDICT, "seeds": 2, "tune_lr": 0, "final_steps": 5})
    demo.main()
    out = capsys.readouterr().out
    assert "Outliers in the training targets\n=====" in out
    assert "Diabetes\n========" in out
    assert (tmp_path / "diabetes" / "run.sqlite").exists()


@pytest.mark.parametrize("name", SMALL)
def test_a_task_of_one_s_own_ends_in_a_verdict(example, name, monkeypatch, capsys):
    module = example(name)
    small = {**ONE_TRAINING, "population": 3, "generations": 1, "meta_steps": 1, "filter_steps": 5, "finalists": 1}
    baseline = "mse" if name == "several_outputs" else "ce"
    small |= {"final_seeds": 1, "training_steps": 4, "final_steps": 4, "seed_with": (baseline,), "filters": ("dead",)}
    monkeypatch.setattr(module, "SEARCH", {**module.SEARCH, **small})
    monkeypatch.setattr(module, "VERDICT", {**module.VERDICT, "seeds": 2, "tune_lr": 0, "final_steps": 4})
    monkeypatch.setattr(module, "make_task", functools.partial(module.make_task, **SMALL[name]))
    module.main()
    shown = capsys.readouterr().out
    assert shown.startswith("Task(")
    (verdict,) = (line for line in shown.splitlines() if line.startswith("- learned "))
    assert baseline in verdict


def test_losses_side_by_side(example):
    module = example("compare_losses")
    found = evomal.compare(module.digits(), losses=module.LOSSES, seeds=2, final_steps=5, threads=1)
    assert {entry.name for entry in found.entries} == {"ce", *module.LOSSES}


@pytest.fixture
def small_images(monkeypatch):
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    task = evomal.Task.from_arrays(x, y, model=lambda: nn.Linear(4, 3), name="small")
    monkeypatch.setattr(evomal, "load_task", lambda *names: task)


def test_the_smoothing_study_trains_once_and_draws(example, small_images, tmp_path, capsys):
    study = example("smoothing_study")
    arguments = [str(tmp_path), "--steps", "5", "--seeds", "2"]
    study.main([*arguments, "--only-seed", "1"])
    assert len(capsys.readouterr().out.splitlines()) == len(study.LOSSES)
    study.main(arguments)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 * len(study.LOSSES)  # the trainings of seed 0, and a summary per loss
    assert printed[-1].startswith("sparse label smoothing, ξ = 0.4: ")
    assert {path.suffix for path in tmp_path.glob("smoothing.*")} == {".svg", ".pdf", ".png", ".csv"}


def test_the_smoothing_study_is_redrawn_from_its_data(example, tmp_path):
    data = ROOT / "docs" / "results" / "smoothing.csv"
    example("smoothing_study").main([str(tmp_path), "--redraw", str(data)])
    assert (tmp_path / "smoothing.csv").read_text() == data.read_text()
