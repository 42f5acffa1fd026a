"""Losses from records: of the kind that the task asks for."""

import torch

from evomal.losses import ExpressionLoss, save_loss
from evomal.runs import RunStore
from evomal.runs.reading import read_runs
from tests.figures.records import record, row, settings

BEST = row(0, 0, 0.1, genome="mul(y, log(f))", weights=(-1.0, 1.0, 1.0))


def run_in(folder, **described):
    (run,) = read_runs([record(folder, [BEST], **described)]).runs
    return run


def task(**content):
    return {"0": {"name": "any", "metric": "error_rate", **content}}


def test_the_kind_is_that_of_the_dataset_or_the_loss_file_or_the_metric(tmp_path):
    run = run_in(tmp_path / "a", task="planted")
    assert run.kind == "regression"  # by mse, which no other kind has
    run = run_in(tmp_path / "b", metric="error_rate")
    assert run.kind is None  # classification and multilabel both have it
    assert run.loss(BEST) is None
    save_loss(ExpressionLoss("mul(y, f)", kind="multilabel"), tmp_path / "b" / "best.json")
    (run,) = read_runs([tmp_path / "b"]).runs
    assert run.kind == "multilabel"
    by_dataset = read_runs([_of_dataset(tmp_path / "c", "cifar100")]).runs[0]
    assert (by_dataset.kind, by_dataset.classes, run.classes) == ("classification", 100, 10)


def test_a_loss_has_the_recorded_weights_and_activation(tmp_path):
    (plain,) = read_runs([_of_dataset(tmp_path / "a", "mnist")]).runs
    (softened,) = read_runs([_of_dataset(tmp_path / "b", "mnist", activation="softplus")]).runs
    (strange,) = read_runs([_of_dataset(tmp_path / "c", "mnist", activation=["?"])]).runs
    logits, target = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([0])
    expected = torch.nn.functional.cross_entropy(logits, target)
    assert torch.allclose(plain.loss(BEST)(logits, target), expected, atol=1e-5)
    assert softened.loss(BEST).activation == "softplus"
    assert strange.loss(BEST).activation == "identity"


def _of_dataset(folder, dataset, **others):
    with RunStore.create(folder, {**settings(), "task": task(dataset=dataset), **others}) as store:
        store.write_chunk(0, [BEST])
    return folder
