"""A task: data in three parts, a model to train on them, a metric and a recipe for training."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from evomal.checks import KINDS, Kind, one_of
from evomal.errors import InputError
from evomal.randomness import generator
from evomal.tasks.builders import ModelFactory, TaskBuilders
from evomal.tasks.data_checks import (
    check_something_to_learn,
    check_split,
    checked_class_weight,
    checked_inputs,
    checked_targets,
    checked_weights,
    class_numbers_of,
    target_rows,
)
from evomal.tasks.labels import Classes, checked_classes, decoded_labels
from evomal.tasks.metrics import Measure, Metric, chosen_metric
from evomal.tasks.named_metrics import Needs
from evomal.tasks.parts import Augmentation, Part
from evomal.tasks.recipe import Recipe
from evomal.text import short_repr, with_article
from evomal.units import Units, Values


@dataclass(frozen=True, eq=False)
class Task(TaskBuilders):
    """Data in three parts, a model, a metric and a recipe: what a loss is searched and compared on.

    Make one with `Task.from_arrays`, `Task.from_datasets` or `Task.from_loaders`; `load_task` returns one of the
    paper's tasks.

    Args:
        kind: "classification", "regression" or "multilabel".
        train: The part that models are trained on.
        validation: The part that searches and learning rates are judged on.
        test: The part that only final results use.
        model: A function without arguments that makes a fresh model; called once for every training.
        metric: What a trained model is judged by.
        outputs: The number of classes, labels or regression targets.
        name: What tables and records call the task.
        augmentation: Random changes of the training images.
        recipe: How models are trained.
        record: What was done to the data: seed, sizes, hardships, the number of rows that occur in two parts.
        units: Mean and scale of the raw targets if the parts hold standardised targets, else None.
        exchangeable: Whether rows of the training and the validation part come from one distribution, so that a search
            may draw the two parts anew (see `resplit`).
        classes: What the class numbers 0, 1, … stand for, or the names of the labels of a multilabel task; None: the
            numbers stand for themselves.
        class_weight: How much each class counts in losses; None: all count alike.
        final: The part that the final of a search is judged on; None: the validation part. A search makes it from
            validation rows, as the setting `final_share` says.

    Raises:
        InputError: If the data, the model or the metric do not fit the kind of task.

    Example:
        >>> import numpy as np
        >>> x, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50) % 2
        >>> Task.from_arrays(x, y, model=lambda: nn.Linear(3, 2), name="parity")
        Task('parity', classification, rows=30 + 10 + 10, outputs=2, metric='error_rate', model='<lambda>')
    """

    kind: Kind
    train: Part
    validation: Part
    test: Part
    model: ModelFactory
    metric: Metric
    outputs: int
    name: str = "own"
    augmentation: Augmentation | None = None
    recipe: Recipe = field(default_factory=Recipe)
    record: Mapping[str, Any] = field(default_factory=dict)
    units: Units | None = None
    exchangeable: bool = False
    classes: Classes | None = None
    class_weight: tuple[float, ...] | None = None
    final: Part | None = None

    def __post_init__(self) -> None:
        one_of("kind", self.kind, KINDS)
        name: Any = self.name
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"a task's name must be a string that is not empty but got {short_repr(name)}")
        if isinstance(self.model, nn.Module) or not callable(self.model):
            raise InputError(
                "model must be a function that makes a fresh model but got "
                f"{with_article(type(self.model).__name__)}: lambda: …"
            )
        if not isinstance(self.recipe, Recipe):
            raise InputError(f"recipe must be an evomal.Recipe but got {with_article(type(self.recipe).__name__)}")
        object.__setattr__(self, "metric", chosen_metric(self.metric, self.kind))
        for name in ("train", *self._judged):
            place, part = f"the {name} split", getattr(self, name)
            targets = checked_targets(part.targets, self.kind, place)
            weights = part.weights
            if weights is not None:
                weights = checked_weights(weights, len(targets), f"the sample weights of {place}")
            part = dataclasses.replace(
                part, inputs=checked_inputs(part.inputs, place), targets=targets, weights=weights
            )
            check_split(part.inputs, part.targets, self.kind, self.outputs, name)
            object.__setattr__(self, name, part)
            if targets.dim() != self.train.targets.dim():
                shapes = f"{tuple(self.train.targets.shape[1:])}, but {place} has {tuple(targets.shape[1:])}"
                raise InputError(f"all splits must have targets of one shape for a sample, such as {shapes}")
        if self.train.source is None:  # else these are the targets of some rows
            check_something_to_learn(self.train.targets, self.kind, "the train split")
        if self.class_weight is not None:
            object.__setattr__(self, "class_weight", checked_class_weight(self.class_weight, self.kind, self.outputs))
        # Searches tell tasks apart by their records, among others.
        record = {key: value for key, value in self.record.items() if key != "class_weight"}
        record |= {} if self.class_weight is None else {"class_weight": list(self.class_weight)}
        object.__setattr__(self, "record", record)
        if self.classes is not None:
            object.__setattr__(self, "classes", checked_classes(self.classes, at_least=1))
            if len(self.classes) != self.outputs:
                raise InputError(
                    f"classes must name each of {self.outputs} classes or labels but got {short_repr(self.classes)}"
                )
        self._check_metric()

    @property
    def _judged(self) -> tuple[str, ...]:
        """The parts that models are judged on."""
        return ("validation", "test") if self.final is None else ("validation", "test", "final")

    def _check_metric(self) -> None:
        """Raise unless the judged parts hold what the metric needs; groups of rows also fix the split."""
        if self.metric.is_by_part and self.final is not None:
            raise InputError("final must be None for a metric with groups of rows, which has no groups for that part")
        for name in self._judged:
            part = getattr(self, name)
            if self.metric.is_by_part and part.source is not None:
                raise InputError(
                    f"a metric with groups of rows needs {name} data that are read once, as Task.from_arrays and "
                    "Task.from_datasets read them, but they come in batches"
                )
            targets = part.targets
            rows = targets.flatten() if self.kind == "classification" else target_rows(targets, self.kind)
            needs = Needs(self.kind, self.outputs, self.classes, has_weights=part.weights is not None)
            self.metric.check(rows, name, samples=len(targets), needs=needs)
        if self.metric.is_by_part:
            object.__setattr__(self, "exchangeable", False)

    def __repr__(self) -> str:
        rows = " + ".join(part.rows_in_words for part in (self.train, self.validation, self.test))
        model = self.record.get("model", getattr(self.model, "__name__", type(self.model).__name__))
        about = f"{self.name!r}, {self.kind}, rows={rows}, outputs={self.outputs}"
        return f"Task({about}, metric={self.metric.name!r}, model={str(model)!r})"

    def judged_by(self, metric: str | Metric | Measure) -> "Task":
        """Return the same task with another metric, given by its name or as a function of outputs and targets."""
        return dataclasses.replace(self, metric=chosen_metric(metric, self.kind))

    def resplit(self, number: int) -> tuple[Tensor, Tensor]:
        """Draw the training and the validation part anew, each as large as it is; the test part stays apart.

        Args:
            number: The number of the split, from 1 on; the same number gives the same rows.

        Returns:
            The rows of the new training part and of the new validation part, as numbers among the rows of the current
            training part followed by those of the current validation part.

        Raises:
            InputError: If the rows of the two parts are not exchangeable.

        Example:
            >>> import numpy as np
            >>> x, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50.0)
            >>> task = Task.from_arrays(x, y, model=lambda: nn.Linear(3, 1), kind="regression")
            >>> [len(rows) for rows in task.resplit(1)]
            [30, 10]
        """
        if not self.exchangeable:
            raise InputError(f"the training and validation rows of {self.name} are not exchangeable")
        rows = generator(number, "resplit").permutation(len(self.train) + len(self.validation))
        first, second = rows[: len(self.train)], rows[len(self.train) :]
        return torch.from_numpy(first), torch.from_numpy(second)

    def to_raw(self, predictions: Values) -> Values:
        """Convert predictions of a model that was trained on this task into the units of the raw targets.

        Args:
            predictions: Outputs of the model, as a tensor or an array; several targets are the last dimension.

        Returns:
            The predictions times the scale plus the mean of the raw targets, or the predictions themselves if the
            task does not standardise its targets.

        Example:
            >>> import numpy as np
            >>> x, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50.0)
            >>> task = Task.from_arrays(x, y, model=lambda: nn.Linear(3, 1), kind="regression")
            >>> bool(np.isin(task.to_raw(task.test.targets).numpy().round(), y).all())
            True
        """
        return predictions if self.units is None else self.units.raw(predictions)

    def decode(self, predictions: Tensor | npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Convert outputs of a model, or class numbers, into what the targets were given as.

        Args:
            predictions: Outputs of a model that was trained on this task, or for classification also class numbers.

        Returns:
            For classification the class of each sample or position: a text or number of `classes`, or the class number
            if the task has no `classes`. For multilabel, whether each label is present. For regression, predictions in
            the units of the raw targets.

        Raises:
            InputError: If the predictions are not numbers, or the numbers of outputs or classes do not fit the task.

        Example:
            >>> import numpy as np
            >>> x, y = np.random.default_rng(0).normal(size=(50, 3)), np.array(["cat", "dog"] * 25)
            >>> task = Task.from_arrays(x, y, model=lambda: nn.Linear(3, 2))
            >>> task.classes, task.decode(torch.tensor([[0.1, 0.9], [2.0, -1.0]])).tolist()
            (('cat', 'dog'), ['dog', 'cat'])
        """
        try:
            values = torch.as_tensor(predictions).detach().cpu()
        except (OverflowError, RuntimeError, TypeError, ValueError):
            raise InputError(f"predictions must be numbers but got {short_repr(predictions)}") from None
        if values.dtype == torch.bfloat16:  # which NumPy does not have
            values = values.float()
        if values.layout != torch.strided:
            values = values.to_dense()
        if self.kind == "regression":
            return self.to_raw(values).numpy()
        if self.kind == "multilabel":
            return (values > 0).numpy()
        if values.is_floating_point():
            values = class_numbers_of(values, self.outputs, self.train.targets.shape[1:])
        return decoded_labels(values.long().numpy(), self.classes, self.outputs)


def one_task(name: str, task: Any) -> Task:
    """Return the task; raise for anything else, also for a list of tasks."""
    if not isinstance(task, Task):
        raise InputError(f"{name} must be a Task but got {short_repr(task)}")
    return task


def task_list(name: str, tasks: Any) -> list[Task]:
    """Return one task, or a list of tasks, as a list; raise for anything else."""
    found = [tasks] if isinstance(tasks, Task) else list(tasks) if isinstance(tasks, list | tuple) else []
    if not found or not all(isinstance(task, Task) for task in found):
        raise InputError(f"{name} must be a Task or a list of tasks but got {short_repr(tasks)}")
    return found


FEWEST_ROWS = 2000
"""The fewest validation rows of which some are set aside for the final. Two classifiers that disagree on one row in
twenty differ by a share of errors with a standard error of 0.7 percentage points on 1,000 rows; with fewer, a final
would decide nothing."""


def with_final_rows(task: Task, share: float, *, generator: np.random.Generator) -> Task:
    """Move a share of the validation rows into the task's part for the final.

    The task stays as it is if it has fewer than 2,000 validation rows, if these are read in batches (whose source
    decides their order and sizes), or if its metric needs rows that one of the parts would lack, such as groups of rows
    or a class that has one row.

    Args:
        task: The task.
        share: The share of the validation rows; 0: none.
        generator: Draws the rows.
    """
    part = task.validation
    if not share or task.final is not None or part.source is not None or len(part) < FEWEST_ROWS:
        return task
    order = generator.permutation(len(part))
    if part.targets[0].numel() == 1:  # both parts have the same shares of classes, or of small and large targets
        order = order[np.argsort(part.targets.flatten().numpy()[order], kind="stable")]
    is_final = np.diff(np.floor(np.arange(len(part) + 1) * share)) > 0  # evenly spread over the order
    validation, final = (part.select(torch.from_numpy(np.sort(order[rows]))) for rows in (~is_final, is_final))
    try:
        return dataclasses.replace(task, validation=validation, final=final)
    except InputError:  # the metric has groups of rows, or a class is so rare that one of the two has none of it
        return task
