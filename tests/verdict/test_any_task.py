"""Search, resume, train, export and compare on inputs and targets of every form."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

import evomal
from evomal.runs import RunStore
from evomal.tasks.inputs import called
from tests.engine.position_tasks import ALL
from tests.engine.streamed_tasks import STREAMED
from tests.example_tasks import SMALL, small_task
from tests.protocols import ONE_TRAINING

SETTINGS = {
    **ONE_TRAINING, "population": 4, "generations": 2, "meta_steps": 2, "training_steps": 6, "filter_steps": 10,
    "final_steps": 6, "finalists": 1, "final_seeds": 1, "device": "cpu",
}  # fmt: skip


class StoppedError(Exception):
    """Stands for a machine that is switched off."""


def stop(_):
    raise StoppedError


def of_torch_alone(loss):
    """The exported loss."""
    names = {}
    exec(evomal.export(loss, to="python"), names)
    return names["LearnedLoss"]()


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask.unsqueeze(-1).to(self.head.weight.dtype)
        return self.head((self.embedding(input_ids) * mask).sum(1) / mask.sum(1))


def of_hugging_face(*, cached):
    datasets = pytest.importorskip("datasets")
    own = np.random.default_rng(0)
    ids = own.integers(1, 9, (80, 5))
    mask = np.arange(5) < own.integers(1, 6, (80, 1))
    columns = {
        "input_ids": ids.tolist(),
        "attention_mask": mask.astype(int).tolist(),
        "label": (ids[:, 0] > 4).tolist(),
    }
    whole = datasets.Dataset.from_dict(columns).with_format("torch")
    parts = [whole.select(range(*ends)) for ends in ((0, 40), (40, 60), (60, 80))]
    return evomal.Task.from_datasets(*parts, model=Bag, cached=cached, recipe=evomal.Recipe(batch_size=8))


TASKS = {
    **ALL,
    "a dataset of Hugging Face": functools.partial(of_hugging_face, cached=None),
    "a dataset of Hugging Face, read anew": functools.partial(of_hugging_face, cached=False),
    **{f"{name}, read anew": make for name, make in STREAMED.items()},
    **{f"the example {name}": functools.partial(small_task, name) for name in SMALL},
}


@pytest.mark.parametrize("name", TASKS)
def test_a_loss_is_searched_resumed_trained_exported_and_compared(name, tmp_path):
    task = TASKS[name]()
    settings = {**SETTINGS, "seed_with": ("mse" if task.kind == "regression" else "ce",)}
    with pytest.raises(StoppedError):
        evomal.search(task, folder=tmp_path / "stopped", callback=stop, **settings)
    result = evomal.search(task, folder=tmp_path / "stopped", **settings)
    evomal.search(task, folder=tmp_path / "whole", **settings)
    with RunStore.read(tmp_path / "whole") as one, RunStore.read(tmp_path / "stopped") as other:
        assert one.dump() == other.dump()
    loss = result.best.loss()
    score = evomal.train(task, loss, steps=5, device="cpu", keep_model=True)
    assert not score.diverged
    outputs, targets = called(score.model, task.test.inputs).detach(), task.test.targets
    if task.kind == "classification" and outputs.shape[2:] != targets.shape[1:]:
        outputs = outputs.movedim(-1, 1)
    torch.testing.assert_close(of_torch_alone(loss)(outputs, targets), loss(outputs, targets))
    table = evomal.compare(task, losses=[loss], seeds=2, rescale=False, final_steps=5, device="cpu")
    assert table.differences["learned", "plain"].n == 2
