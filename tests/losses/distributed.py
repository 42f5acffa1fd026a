"""What each of two processes does in the test of losses in distributed trainings: it raises where numbers differ."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from evomal.losses import Loss
from tests.losses.every_loss import CLASSES, LOSSES, batch

PROCESSES = 2
_ROWS = 4  # of each process


class WithLoss(nn.Module):
    """A model whose loss is a part of it, as in Lightning."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.line = nn.Linear(3, 1 if loss.kind == "regression" else CLASSES)
        self.loss = loss

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        output = self.line(x)
        return self.loss(output.squeeze(1) if self.loss.kind == "regression" else output, target)


def _sharded(model: nn.Module) -> nn.Module:
    return fully_shard(model, mesh=init_device_mesh("cpu", (PROCESSES,)))


def check(rank: int, meeting: str) -> None:
    """Compare the gradients of two processes with those of the mean of their losses, for every loss."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=PROCESSES)
    ways: dict[str, Callable[[nn.Module], Any]] = {"DDP": DistributedDataParallel, "FSDP2": _sharded}
    for name, loss in LOSSES.items():
        torch.manual_seed(0)
        x, (_, target) = torch.randn(PROCESSES * _ROWS, 3), batch(loss, PROCESSES * _ROWS)
        alone = WithLoss(loss)
        start = {key: value.clone() for key, value in alone.line.state_dict().items()}
        parts = [slice(place * _ROWS, (place + 1) * _ROWS) for place in range(PROCESSES)]
        # Not the loss of all rows: with class weights, each process divides by the weights of its own rows.
        (sum(alone(x[part], target[part]) for part in parts) / PROCESSES).backward()
        own = parts[rank]
        for way, wrap in ways.items():
            model = WithLoss(loss)
            model.line.load_state_dict(start)
            wrapped = wrap(model)
            wrapped(x[own], target[own]).backward()
            for parameter, expected in zip(model.line.parameters(), alone.line.parameters(), strict=True):
                found = parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad
                torch.testing.assert_close(found, expected.grad, msg=lambda text, of=(name, way): f"{of}: {text}")
    dist.destroy_process_group()
