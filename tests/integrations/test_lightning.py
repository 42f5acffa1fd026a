"""Losses in Lightning: what the callback logs, checkpoints, accumulation, and the progress of a training."""

import pytest
import torch
import torch.nn.functional as F

from evomal.errors import InputError
from evomal.losses import ExpressionLoss, FocalLoss
from tests.integrations import library

lightning = library("lightning.pytorch")
from evomal.integrations.lightning import LossCallback  # noqa: E402  # needs the library

RNG = torch.Generator().manual_seed(0)
X, Y = torch.randn(12, 3, generator=RNG), torch.randint(4, (12,), generator=RNG)

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers and loggers


class Module(lightning.LightningModule):
    def __init__(self, loss):
        super().__init__()
        self.line, self.loss = torch.nn.Linear(3, 4), loss

    def training_step(self, batch, number):
        x, y = batch
        return self.loss(self.line(x), y)

    def validation_step(self, batch, number):
        self.training_step(batch, number)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def trained(folder, module, callbacks, **options):
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=4)
    trainer = lightning.Trainer(
        default_root_dir=folder, max_epochs=2, accelerator="cpu", callbacks=callbacks, enable_progress_bar=False,
        enable_model_summary=False, logger=False, num_sanity_val_steps=0, **options,
    )  # fmt: skip
    trainer.fit(module, data, data)
    return trainer


def test_the_loss_is_logged_beside_the_usual_one(tmp_path):
    module = Module(FocalLoss(2.0))
    trainer = trained(tmp_path, module, [LossCallback(module.loss)])
    with torch.no_grad():
        output = module.line(X)
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    for stage in ("train", "val"):
        of_epoch = "_epoch" if stage == "train" else ""
        assert logged[f"{stage}/ce{of_epoch}"] == pytest.approx(F.cross_entropy(output, Y).item(), rel=1e-5)
        expected = FocalLoss(2.0)(output, Y).item()
        assert logged[f"{stage}/learned loss{of_epoch}"] == pytest.approx(expected, rel=1e-5)
    assert not module.loss._forward_hooks


def test_learned_numbers_are_in_the_checkpoint(tmp_path):
    module = Module(ExpressionLoss("square(sub(y, f))", [2.0, 1.0, 3.0]))
    trainer = trained(tmp_path, module, [LossCallback(module.loss)])
    trainer.save_checkpoint(tmp_path / "mine.ckpt")
    again = Module(ExpressionLoss("square(sub(y, f))", [1.0, 1.0, 1.0]))
    again.load_state_dict(torch.load(tmp_path / "mine.ckpt", weights_only=True)["state_dict"])
    assert again.loss.weights.tolist() == [2.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("accumulation", "seen"), [(1, [0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6]), (3, [0] * 3 + [0.5] * 3)]
)
def test_a_loss_with_t_is_told_the_progress(tmp_path, accumulation, seen):
    module, found = Module(ExpressionLoss("mul(y, add(t, log(f)))")), []

    class Watch(lightning.Callback):
        def on_train_batch_end(self, *_):
            found.append(module.loss.progress)

    callbacks = [LossCallback(module.loss, on_step=False), Watch()]
    trained(tmp_path, module, callbacks, accumulate_grad_batches=accumulation)
    assert found == pytest.approx(seen)


def test_other_losses_are_refused():
    with pytest.raises(InputError, match="loss must be one of evomal's losses but got MSELoss"):
        LossCallback(torch.nn.MSELoss())
