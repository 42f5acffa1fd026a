"""What a task is, as far as a search depends on it: two tasks that share this give the same search."""

import dataclasses
import hashlib
from typing import Any

from torch import Tensor

from evomal.engine.resolve import initial_model
from evomal.tasks.task import Task

_DIGITS = 16  # enough to tell two apart, and short enough to be read


def task_content(task: Task) -> dict[str, Any]:
    """Name, record, metric and recipe of a task; digests of its data and of a model it makes."""
    module = initial_model(task, 0)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    parts = (task.train.inputs, task.train.targets, task.validation.inputs, task.validation.targets)
    return {
        **task.record,
        "name": task.name,
        "metric": task.metric.name,
        "higher_is_better": task.metric.higher_is_better,
        "recipe": dataclasses.asdict(task.recipe),
        "data": digest(parts),
        "fresh_model": digest(state.values(), repr(module)),
    }


def digest(tensors: Any, text: str = "") -> str:
    """A short digest of the tensors' contents, dtypes and shapes, and of a text."""
    found = hashlib.sha256(text.encode())
    tensor: Tensor
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        found.update(f"{plain.dtype} {tuple(plain.shape)} ".encode())
        found.update(plain.numpy().tobytes())
    return found.hexdigest()[:_DIGITS]
