"""Tasks by name: the paper's built-in tasks, and `file.py:function` of a user."""

import dataclasses
import functools
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from evomal.checks import named
from evomal.errors import InputError
from evomal.tasks.built_in import TASKS, BuiltIn
from evomal.tasks.datasets import DATASETS, ImageData, TableData, load
from evomal.tasks.hardships import Hardships
from evomal.tasks.metrics import Measure, Metric, chosen_metric
from evomal.tasks.models import make_model
from evomal.tasks.parts import Augmentation, Part
from evomal.tasks.recipe import Recipe
from evomal.tasks.splits import shared_content, split_rows
from evomal.tasks.task import Task
from evomal.text import short_repr, with_article
from evomal.users_code import users_code

_VALIDATION_SHARE = 0.1  # of the training images


def load_task(
    name: str,
    model: str | None = None,
    *,
    seed: int = 0,
    data: str | os.PathLike[str] | None = None,
    metric: str | Metric | Measure | None = None,
    hardships: Hardships | None = None,
) -> Task:
    """Load one of the paper's tasks.

    Args:
        name: The name of a task, as `evomal tasks` lists it.
        model: The name of a model, such as "mlp" or "mlp:hidden=64". "paper" means the first model of the paper for
            this task; None means "mlp:hidden=64" for tables and MNIST, and the paper's model otherwise.
        seed: Decides the split and the hardships, not the training.
        data: The folder of the data files; None: the one that EVOMAL_DATA names, else the user's cache folder.
        metric: What a trained model is judged by: a name or a `Metric`.
        hardships: What is done to the training part.

    Returns:
        The task; its record names the model.

    Raises:
        InputError: If there is no such task, model or metric, or a data file is missing or damaged.

    Example:
        >>> load_task("diabetes").record["model"]
        'mlp:hidden=64'
    """
    spec = loadable_model(name, model, metric=metric, hardships=hardships)
    row, info = TASKS[name], DATASETS[name]
    recipe, factory = Recipe(**row.recipe), functools.partial(make_model, spec, info.shape, info.classes or 1)
    raw = load(name, data)
    if isinstance(raw, TableData):
        task = Task.from_arrays(
            raw.features, raw.targets, model=factory, kind="regression", seed=seed, metric=metric, recipe=recipe,
            hardships=hardships, name=name,
        )  # fmt: skip
    else:
        assert info.classes is not None  # images have classes
        parts, record = _image_parts(raw, row, info.classes, hardships or Hardships(), seed)
        chosen = chosen_metric(metric, "classification")
        augmentation = Augmentation(row.padding, flip=row.flip) if row.padding else None
        task = Task("classification", *parts, factory, chosen, info.classes, name, augmentation, recipe, record)
    return dataclasses.replace(task, record={**task.record, "dataset": name, "model": spec})


def loadable_model(
    name: str,
    model: str | None = None,
    *,
    metric: str | Metric | Measure | None = None,
    hardships: Hardships | None = None,
) -> str:
    """The model that `load_task` would use; raises InputError for arguments that it refuses whatever the data."""
    row = named("task", name, TASKS)
    given: Any = model
    if not isinstance(given, str | None):
        raise InputError(f"model must be the name of a model but got {short_repr(given)}")
    if not isinstance(hardships, Hardships | None):
        raise InputError(f"hardships must be an evomal.Hardships but got {with_article(type(hardships).__name__)}")
    spec = row.models[0] if model == "paper" else model or row.default
    info, hard, first = DATASETS[name], hardships or Hardships(), np.zeros(1, np.int64)
    _require_model(spec, info.shape, info.classes or 1)
    chosen_metric(metric, info.kind)
    hard.kept_rows(first, first if info.classes else None, seed=0)
    if info.classes:
        hard.noisy_labels(first, info.classes, seed=0)
    else:
        hard.outlying_targets(first.astype(np.float64), seed=0)
    return spec


@functools.cache  # a large model takes a second
def _require_model(spec: str, shape: tuple[int, ...], outputs: int) -> None:
    """Raise InputError if there is no such model, or it does not fit the data."""
    make_model(spec, shape, outputs)


def _image_parts(
    raw: ImageData, row: BuiltIn, classes: int, hardships: Hardships, seed: int
) -> tuple[tuple[Part, Part, Part], dict[str, object]]:
    """Split the training images, apply the hardships and normalise; return the parts and what was done."""
    split = split_rows(len(raw.train_labels), validation=_VALIDATION_SHARE, test=0, labels=raw.train_labels, seed=seed)
    rows = hardships.kept_rows(split.train, raw.train_labels, seed=seed)
    labels = hardships.noisy_labels(raw.train_labels[rows], classes, seed=seed)
    parts = (
        _image_part(raw.train_images[rows], labels, row),
        _image_part(raw.train_images[split.validation], raw.train_labels[split.validation], row),
        _image_part(raw.test_images, raw.test_labels, row),
    )
    counts = dict(zip(("train", "validation", "test"), map(len, parts), strict=True))
    shared = shared_content([raw.train_images[split.train]], [raw.train_images[split.validation]], [raw.test_images])
    record = {"seed": seed, "rows": counts, "equal_rows_across_splits": shared, "hardships": vars(hardships)}
    return parts, record


def _image_part(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], row: BuiltIn) -> Part:
    mean, deviation = (torch.tensor(numbers).reshape(-1, 1, 1) for numbers in (row.mean, row.deviation))
    pixels = torch.from_numpy(images).float().div_(255)
    return Part(pixels.sub_(mean).div_(deviation), torch.from_numpy(labels))


def task_from_file(spec: str) -> Task:
    """Run a user's Python file and return the task that its function makes.

    Args:
        spec: The file and the function, as in "file.py:function".

    Raises:
        InputError: If there is no such file or function, if it fails, or if it does not return a `Task`.
    """
    path, _, function = spec.rpartition(":")
    file = Path(path)
    if not os.path.isfile(file):
        raise InputError(f"{spec}: there is no file {path!r}")
    module_spec = importlib.util.spec_from_file_location(file.stem, file)
    if module_spec is None or module_spec.loader is None:
        raise InputError(f"{spec}: {path!r} is not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules.setdefault(file.stem, module)  # dataclasses look their module up there
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # so that it can import files beside it; last, so that these shadow nothing
    with users_code(spec, InputError):
        module_spec.loader.exec_module(module)
        make = getattr(module, function, None)
        if not callable(make):
            raise InputError(f"{spec}: {path} has no function {function!r}")
        task = make()
    if not isinstance(task, Task):
        raise InputError(f"{spec}: {function} must return a Task but returned {with_article(type(task).__name__)}")
    return task
