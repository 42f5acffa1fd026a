"""Every file of `campaigns/` in a tiny version: it runs on a CPU, is stopped and resumed, and has a page."""

from pathlib import Path

import numpy as np
import pytest
import torch

from evomal.campaigns import Campaign, CampaignTask, figures, read_campaign, read_result, run_campaign
from evomal.campaigns.cells import OutOfTimeError, TimeLimit
from evomal.campaigns.declaration import SEARCH_FIGURES
from evomal.tasks.datasets import DATASETS
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task
from tests.engine.populations import with_recipe

FILES = sorted((Path(__file__).parents[2] / "campaigns").glob("*.toml"))
SETTINGS = {
    "device": "cpu", "precision": "float32", "channels_last": False, "population": 4, "generations": 1, "islands": 1,
    "first_trees": 20, "meta_steps": 1, "training_steps": 2, "filter_steps": 2, "tried_rates": 1, "rungs": (1.0,),
    "rung_seeds": (1,), "finalists": 1, "final_seeds": 2, "final_steps": 4, "milestones": (),
}  # fmt: skip


def tiny_task(kind, metric, name):
    """A task of the same kind and metric with 60 rows, whatever was declared."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(60, 3)).astype("float32")
    y = x[:, 0] if kind == "regression" else x.argmax(1)
    outputs = 1 if kind == "regression" else 3

    def model():
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, outputs))

    task = Task.from_arrays(x, y, model=model, kind=kind, metric=metric, name=name)
    return with_recipe(task, Recipe(lr=0.1, batch_size=16))


def shrunk(path):
    """The first two tasks of a campaign with everything small; methods, presets, losses and figures are its own."""
    declared = read_campaign(path)
    tasks = []
    for task in declared.tasks[:2]:
        names = [other.name for other in declared.tasks[:2]]
        own = task.model_dump()
        own |= {"search_seeds": 1, "seeds": 1, "tune_lr": min(2, task.tune_lr), "settings": SETTINGS, "evaluation": {}}
        own["learned_on"] = tuple(name for name in task.learned_on if name in names)
        own["figures"] |= {"seeds": 1, "rates": task.figures.rates[:2], "rate_steps": None}
        tasks.append(own)
    found = Campaign(title=declared.title, about=declared.about, tasks=tasks)
    found._file = path
    return found


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Tiny tasks, and figures that are drawn once, without their other formats."""

    def load(task, folder, data=None):
        is_regression = "outliers" in task.name if task.names_python_file else DATASETS[task.task].kind == "regression"
        return tiny_task("regression" if is_regression else "classification", task.metric, task.name)

    def drawn(figure, path, columns):
        assert columns
        Path(f"{path}.svg").write_text("<svg/>")

    monkeypatch.setattr(CampaignTask, "load", load)
    monkeypatch.setattr(figures, "save_figure", drawn)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_campaign_is_stopped_resumed_and_shown(path, tmp_path, monkeypatch):
    campaign, checked, check = shrunk(path), [0], TimeLimit.check

    def stops_once(limit):
        check(limit)
        checked[0] += 1
        if checked[0] == 12:
            raise OutOfTimeError

    monkeypatch.setattr(TimeLimit, "check", stops_once)
    assert run_campaign(campaign, tmp_path).left
    assert run_campaign(campaign, tmp_path).left == ()
    result, page = read_result(tmp_path / "campaign.json"), (tmp_path / "campaign.md").read_text()
    for task, measured in zip(campaign.tasks, result.tasks, strict=True):
        files = [loss for loss in task.losses if loss.endswith(".json")]
        assert {*task.losses} - {"strong", *files} <= {*measured.known_losses}
        assert {Path(file).stem for file in files} <= {*measured.contestants}
        assert len(measured.searches) == len(task.methods) * len(task.presets)
        for kind in task.figures.kinds:
            if kind not in SEARCH_FIGURES or measured.searches:
                assert f"(figures/{task.name}-{kind}.svg)" in page
        for cell in measured.figures:
            assert cell.lines
            assert cell.lines[0] in page.replace("\\", "")
