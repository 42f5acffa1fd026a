"""Tasks by name: the paper's built-in tasks, and `file.py:function` of a user."""

import dataclasses
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from evomal.checks import named
from evomal.errors import InputError
from evomal.tasks.batches import Augmentation
from evomal.tasks.datasets import DATASETS, ImageData, TableData, load
from evomal.tasks.hardships import Hardships
from evomal.tasks.metrics import Measure, Metric, chosen_metric
from evomal.tasks.models import make_model
from evomal.tasks.parts import Part
from evomal.tasks.splits import shared_content, split_rows
from evomal.tasks.task import ModelFactory, Recipe, Task
from evomal.text import short_repr
from evomal.users_code import users_code

_VALIDATION_SHARE = 0.1  # of the training images
_TABLES = Recipe()
# One district has hundreds of inmates per household, a hundred deviations off: with lr 0.01 most trainings diverge.
_TABLE_WITH_EXTREMES = Recipe(lr=0.001)
_PLAIN_SGD = Recipe(momentum=0.0, nesterov=False, weight_decay=0.0)  # MNIST in the public settings
_LONG = Recipe(steps=150_000, milestones=(100_000, 135_000))


@dataclass(frozen=True)
class BuiltIn:
    """A row of the table of tasks."""

    name: str
    models: tuple[str, ...]
    """The paper's models; "paper" means the first."""
    recipe: Recipe
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    augmentation: Augmentation | None = None
    small: str = ""
    """A small model for a first look; empty where the paper's own is the default."""

    @property
    def default(self) -> str:
        """The model that is used if none is named."""
        return self.small or self.models[0]


_SMALL = "mlp:hidden=64"
_CIFAR_MODELS = ("allcnnc", "alexnet", "vgg16", "resnet18", "preresnet101", "wrn28-10", "squeezenet")
_ROWS = (
    BuiltIn("diabetes", ("mlp",), _TABLES, small=_SMALL),
    BuiltIn("boston", ("mlp",), _TABLES, small=_SMALL),
    BuiltIn("california", ("mlp",), _TABLE_WITH_EXTREMES, small=_SMALL),
    BuiltIn("mnist", ("lenet5", "mlp", "logistic"), _PLAIN_SGD, (0.1307,), (0.3081,), small=_SMALL),
    BuiltIn(
        "cifar10", _CIFAR_MODELS, _LONG, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), Augmentation(4, flip=True)
    ),
    BuiltIn(
        "cifar100",
        ("wrn28-10", "pyramidnet", *_CIFAR_MODELS[:5], "squeezenet"),
        _LONG,
        (0.5071, 0.4867, 0.4408),
        (0.2675, 0.2565, 0.2761),
        Augmentation(4, flip=True),
    ),
    # A mirrored digit is another sign: crops only.
    BuiltIn(
        "svhn", ("wrn28-10",), _LONG, (0.4380, 0.4440, 0.4730), (0.1751, 0.1771, 0.1744), Augmentation(4, flip=False)
    ),
)

TASKS: dict[str, BuiltIn] = {row.name: row for row in _ROWS}


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
    row = named("task", name, TASKS)
    given: Any = model
    if not isinstance(given, str | None):
        raise InputError(f"model must be the name of a model but got {short_repr(given)}")
    if not isinstance(hardships, Hardships | None):
        raise InputError(f"hardships must be an evomal.Hardships but got a {type(hardships).__name__}")
    spec = row.models[0] if model == "paper" else model or row.default
    info = DATASETS[name]
    factory = _factory(spec, info.shape, info.classes or 1)
    factory()  # so that a wrong model is noticed before the data are read
    raw = load(name, data)
    if isinstance(raw, TableData):
        task = Task.from_arrays(
            raw.features,
            raw.targets,
            model=factory,
            kind="regression",
            seed=seed,
            metric=metric,
            recipe=row.recipe,
            hardships=hardships,
            name=name,
        )
    else:
        assert info.classes is not None  # images have classes
        parts, record = _image_parts(raw, row, info.classes, hardships or Hardships(), seed)
        chosen = chosen_metric(metric, "classification")
        task = Task("classification", *parts, factory, chosen, info.classes, name, row.augmentation, row.recipe, record)
    return dataclasses.replace(task, record={**task.record, "dataset": name, "model": spec})


def _factory(spec: str, shape: tuple[int, ...], outputs: int) -> ModelFactory:
    return lambda: make_model(spec, shape, outputs)


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
    shared = shared_content(raw.train_images[split.train], raw.train_images[split.validation], raw.test_images)
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
        sys.path.append(folder)  # so that it can import its neighbours; last, so that they hide nothing
    with users_code(spec, InputError):
        module_spec.loader.exec_module(module)
        make = getattr(module, function, None)
        if not callable(make):
            raise InputError(f"{spec}: {path} has no function {function!r}")
        task = make()
    if not isinstance(task, Task):
        raise InputError(f"{spec}: {function} must return a Task but returned a {type(task).__name__}")
    return task
