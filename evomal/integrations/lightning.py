"""Losses in Lightning: a callback that logs them beside the usual loss, and sets their progress."""

import inspect
from typing import Any

import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.extras import optional_library
from evomal.losses.catalogue import TASK_LOSSES, named_loss
from evomal.losses.loss import Loss

_lightning = optional_library("lightning.pytorch", "evomal.integrations.lightning", "lightning")


class LossCallback(_lightning.Callback):  # type: ignore[misc,name-defined]
    """Logs a loss of a Lightning module, and what the usual loss of its kind of task would be for the same outputs.

    Values of different losses cannot be compared; those of the usual loss can. Each batch is logged as
    `train/learned loss` and `train/ce` (`train/mse` for regression), and with `val` and `test` in place of `train`. The
    formula is logged as the hyperparameter `loss`. A loss with the terminal `t` is told the progress of the training.

    Args:
        loss: The loss that the module calls; a submodule of it, so that it moves with the module and is in its
            checkpoints.
        on_step: Whether training is logged for each step as well as for each epoch.

    Raises:
        InputError: The loss is not one of evomal's.

    Example:
        >>> trainer = lightning.Trainer(callbacks=[LossCallback(module.loss)])  # doctest: +SKIP
    """

    def __init__(self, loss: Loss, *, on_step: bool = True) -> None:
        if not isinstance(loss, Loss):
            raise InputError(f"loss must be one of evomal's losses but got {type(loss).__name__}")
        self.loss, self.on_step = loss, on_step
        self._usual = TASK_LOSSES[loss.kind]
        self._reference = named_loss(self._usual, kind=loss.kind, ignore_index=loss.ignore_index).in_units(loss.units)
        self._seen: tuple[Tensor, Tensor, Tensor] | None = None
        self._hook: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Register the hook that sees each value of the loss."""
        self._hook = self.loss.register_forward_hook(self._keep, with_kwargs=True)
        if stage == "fit" and trainer.logger is not None:
            trainer.logger.log_hyperparams({"loss": self.loss.formula()})

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Remove the hook."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Tell the loss how far the training is."""
        steps = trainer.estimated_stepping_batches
        if getattr(self.loss, "is_moving", False) and 0 < steps < float("inf"):
            self.loss.progress = min(1.0, trainer.global_step / steps)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Log a batch."""
        self._log(pl_module, "train", on_step=self.on_step)

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Log a batch."""
        self._log(pl_module, "val", on_step=False)

    def on_test_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Log a batch."""
        self._log(pl_module, "test", on_step=False)

    def _keep(self, module: Any, arguments: tuple[Tensor, ...], named: dict[str, Tensor], value: Tensor) -> None:
        output, target = inspect.signature(module.forward).bind(*arguments, **named).arguments.values()
        self._seen = output.detach(), target.detach(), value.detach().mean()

    def _log(self, pl_module: Any, stage: str, *, on_step: bool) -> None:
        if self._seen is None:
            return
        output, target, value = self._seen
        self._seen = None
        with torch.no_grad():
            usual = self._reference(output.float(), target)
        options = {"on_step": on_step, "on_epoch": True, "batch_size": len(output)}
        pl_module.log(f"{stage}/learned loss", value, **options)
        pl_module.log(f"{stage}/{self._usual}", usual, **options)
