"""Losses from records: of the kind that the task asks for."""

import torch

from evomal.losses import ExpressionLoss, save_loss
from evomal.runs import RunStore
from evomal.runs.reading import chosen_runs, classes_of, kind_of, loss_of
from tests.figures.records import record, row, settings

BEST = row(0, 0, 0.1, genome="mul(y, log(f))", weights=(-1.0, 1.0, 1.0))


def run_in(folder, **described):
    (run,) = chosen_runs([record(folder, [BEST], **described)]).runs
    return run


def task(**content):
    return {"0": {"name": "any", "metric": "error_rate", **content}}


def test_the_kind_is_that_of_the_dataset_or_the_loss_file_or_the_metric(tmp_path):
    run = run_in(tmp_path / "a", task="planted")
    assert kind_of(run) == "regression"  # by mse, which no other kind has
    run = run_in(tmp_path / "b", metric="error_rate")
    assert kind_of(run) is None  # classification and multilabel both have it
    assert loss_of(run, BEST) is None
    save_loss(ExpressionLoss("mul(y, f)", kind="multilabel"), tmp_path / "b" / "best.json")
    assert kind_of(run) == "multilabel"
    by_dataset = chosen_runs([_of_dataset(tmp_path / "c", "cifar100")]).runs[0]
    assert (kind_of(by_dataset), classes_of(by_dataset), classes_of(run)) == ("classification", 100, 10)


def test_a_loss_has_the_recorded_weights_and_activation(tmp_path):
    (plain,) = chosen_runs([_of_dataset(tmp_path / "a", "mnist")]).runs
    (softened,) = chosen_runs([_of_dataset(tmp_path / "b", "mnist", activation="softplus")]).runs
    (strange,) = chosen_runs([_of_dataset(tmp_path / "c", "mnist", activation=["?"])]).runs
    logits, target = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([0])
    expected = torch.nn.functional.cross_entropy(logits, target)
    assert torch.allclose(loss_of(plain, BEST)(logits, target), expected, atol=1e-5)
    assert loss_of(softened, BEST).activation == "softplus"
    assert loss_of(strange, BEST).activation == "identity"


def _of_dataset(folder, dataset, **others):
    with RunStore.create(folder, {**settings(), "task": task(dataset=dataset), **others}) as store:
        store.write_chunk(0, [BEST])
    return folder
