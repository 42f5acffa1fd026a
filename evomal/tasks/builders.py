"""The ways to make a task: from arrays, datasets or loaders."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from torch import nn

from evomal.checks import Kind
from evomal.tasks.building import ArrayOptions, array_fields
from evomal.tasks.dataset_parts import dataset_fields, loader_fields
from evomal.tasks.fitting import DatasetOptions
from evomal.tasks.hardships import Hardships
from evomal.tasks.labels import IGNORED
from evomal.tasks.metrics import Measure, Metric, chosen_metric
from evomal.tasks.recipe import Recipe

ModelFactory = Callable[[], nn.Module]


class TaskBuilders:
    """The class methods of `Task` that make one."""

    if TYPE_CHECKING:  # the fields are those of Task

        def __init__(self, **fields: Any) -> None: ...

    @classmethod
    def from_arrays(
        cls,
        x: Any = None,
        y: Any = None,
        *,
        model: ModelFactory,
        kind: Kind = "classification",
        train: Sequence[Any] | None = None,
        validation: float | Sequence[Any] = 0.2,
        test: float | Sequence[Any] = 0.2,
        groups: Any = None,
        order: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        classes: Sequence[Any] | None = None,
        ignore_index: int | str | None = IGNORED,
        seed: int = 0,
        standardise: bool = True,
        metric: str | Metric | Measure | None = None,
        recipe: Recipe | None = None,
        hardships: Hardships | None = None,
        name: str = "own",
    ) -> Self:
        """Make a task from arrays: split them into three parts, number the classes and standardise tables.

        Arrays may be NumPy arrays, tensors, lists, pandas frames and series, or SciPy sparse matrices, which are made
        dense. See docs/own-task.md for details.

        Args:
            x: The inputs, with a row for each sample: one array, or a tuple of arrays, which the model is called with
                as `model(*x)`, or a dictionary of arrays, as `model(**x)`. Whole numbers stay whole numbers if the
                model takes them, as an embedding does, and become floats otherwise.
            y: For classification, class numbers from 0, or texts or truth values, which are numbered (see `classes`);
                of shape (samples,), or with a label for each position, such as (samples, height, width). For
                regression, numbers; for multilabel, a matrix of zeros and ones.
            model: A function without arguments that makes a fresh model.
            kind: "classification", "regression" or "multilabel".
            train: In place of x and y, the training part as (x, y) or (x, y, weights).
            validation: The share of the rows for validation; if train is given, a part, or a share of train's rows.
            test: The share of the rows for the test; if train is given, a part, or a share of train's rows.
            groups: The group of each row, such as a patient: no group is in two parts.
            order: The time of each row, or "rows" if they are sorted: later rows are validation and test.
            sample_weight: How much each sample counts in losses; samples of weight 0 are left out of all parts.
            class_weight: How much each class counts in losses: "balanced", a weight for each class, or a dictionary.
            classes: The classes in the order of their numbers; None: texts in alphabetical order.
            ignore_index: The label of positions that count in no loss and no metric.
            seed: Decides the split and the hardships, not the training.
            standardise: Whether tables of floats among the inputs, and the targets of regression whatever the inputs
                are, are standardised with the means and deviations of the training part. `to_raw` converts predictions
                back.
            metric: A name, a `Metric`, or None for the default of the kind.
            recipe: How models are trained; None: `Recipe()`.
            hardships: What is done to the training part.
            name: What tables and records call the task.

        Returns:
            The task.

        Raises:
            InputError: If the arrays do not fit each other or the kind of task, or cannot be split.

        Example:
            >>> import numpy as np
            >>> from evomal import Recipe, Task
            >>> x, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50.0)
            >>> task = Task.from_arrays(
            ...     x, y, model=lambda: nn.Linear(3, 1), kind="regression", recipe=Recipe(lr=0.1, batch_size=16)
            ... )
            >>> len(task.train), task.recipe.lr
            (30, 0.1)
        """
        options = ArrayOptions(
            kind, groups, order, sample_weight, class_weight, classes, ignore_index, seed, standardise, hardships
        )
        parts = {"train": train, "validation": validation, "test": test}
        rows, total, fields = array_fields(x, y, parts, options, model)
        chosen, own = chosen_metric(metric, kind).of_rows(rows, total), Recipe() if recipe is None else recipe
        return cls(kind=kind, model=model, metric=chosen, name=name, recipe=own, **fields)

    @classmethod
    def from_datasets(
        cls,
        train: Any,
        validation: Any,
        test: Any,
        *,
        model: ModelFactory,
        kind: Kind = "classification",
        cached: bool | None = None,
        workers: int | None = None,
        inputs: str | Sequence[str] | None = None,
        target: str | None = None,
        class_weight: Any = None,
        classes: Sequence[Any] | None = None,
        ignore_index: int = IGNORED,
        standardise: bool = False,
        metric: str | Metric | Measure | None = None,
        recipe: Recipe | None = None,
        name: str = "own",
    ) -> Self:
        """Make a task from three torch or Hugging Face datasets, or from pairs of arrays on the disk.

        Items are pairs of input and target, triples with a weight, or mappings of columns. Validation and test data are
        taken as they are given, and read once. So are training data, unless an item differs from reading to reading,
        as with random crops, or they are too large: such data are read while a model trains, in worker processes, and
        drawn anew in every epoch. What an item draws follows from seed, epoch and item, so a training can be repeated
        and resumed, whatever the number of workers; `Task.record["read_anew"]` says why data are not read once.

        Args:
            train: What to train on: a dataset with a length, or a pair of arrays, such as `numpy.memmap`.
            validation: What searches and learning rates are judged on.
            test: What only final results use.
            model: A function without arguments that makes a fresh model.
            kind: "classification", "regression" or "multilabel".
            cached: Whether the training data are read once (True) or while a model trains (False); None: by the rule
                above, which reads some items several times.
            workers: The number of processes that read while a model trains; None: several on CUDA, none on a CPU.
            inputs: The columns that a model takes if items are mappings: one name, or several, which it takes by name;
                None: all but the target.
            target: The column of the target; None: label, labels, target, targets or y.
            class_weight: How much each class counts in losses: "balanced", a mapping, or a weight for each class.
            classes: The names of the classes, in the order of their numbers; None: as many as there are.
            ignore_index: The label of positions that count in no loss and no metric.
            standardise: Whether the targets of regression are standardised with the means and deviations of the
                training data, or of the sample of them if they are read while a model trains. Inputs are taken as they
                are. `to_raw` converts predictions back.
            metric: A name, a `Metric`, or None for the default of the kind.
            recipe: How models are trained; None: `Recipe()`.
            name: What tables and records call the task.

        Returns:
            The task.

        Raises:
            InputError: If a dataset is empty, has items of several shapes, does not fit the kind of task, or cannot be
                read twice with the same result.

        Example:
            >>> import torch
            >>> from torch.utils.data import TensorDataset
            >>> from evomal import Recipe, Task
            >>> parts = [TensorDataset(torch.randn(8, 3), torch.arange(8) % 2) for _ in range(3)]
            >>> Task.from_datasets(*parts, model=lambda: nn.Linear(3, 2), recipe=Recipe(batch_size=4)).recipe.batch_size
            4
        """
        options = DatasetOptions(kind, target, inputs, classes, class_weight, ignore_index, workers, standardise)
        datasets = {"training": train, "validation": validation, "test": test}
        fields = dataset_fields(datasets, cached, options, model)
        chosen, own = chosen_metric(metric, kind), Recipe() if recipe is None else recipe
        return cls(kind=kind, model=model, metric=chosen, name=name, recipe=own, **fields)

    @classmethod
    def from_loaders(
        cls,
        train: Any,
        validation: Any,
        test: Any,
        *,
        model: ModelFactory,
        kind: Kind = "classification",
        workers: int | None = None,
        inputs: str | Sequence[str] | None = None,
        target: str | None = None,
        class_weight: Any = None,
        classes: Sequence[Any] | None = None,
        ignore_index: int = IGNORED,
        standardise: bool = False,
        metric: str | Metric | Measure | None = None,
        recipe: Recipe | None = None,
        name: str = "own",
    ) -> Self:
        """Make a task from three loaders of batches, whose shapes may vary.

        A loader is a `torch.utils.data.DataLoader`, whose dataset, sampler and collate function are used, or a function
        that takes a seed and returns the batches of one epoch, for data that come as a stream. Batches are pairs of
        inputs and targets, triples with weights, or mappings of columns.

        Every batch follows from seed and step. To resume a training on a stream, the batches before are read and
        dropped. Batches of varying shape are trained on without CUDA graphs. Validation and test data are read once, if
        they fit into memory.

        Args:
            train: The batches to train on. Their size is the task's `recipe.batch_size`.
            validation: The batches that searches and learning rates are judged on.
            test: The batches that only final results use.
            model: A function without arguments that makes a fresh model.
            kind: "classification", "regression" or "multilabel".
            workers: The number of processes that read while a model trains; None: those of a `DataLoader`, and for a
                stream one on CUDA and none on a CPU.
            inputs: The columns that a model takes if batches are mappings, as for `from_datasets`.
            target: The column of the target; None: label, labels, target, targets or y.
            class_weight: How much each class counts in losses, as for `from_datasets`.
            classes: The names of the classes, in the order of their numbers; None: as many as the model has outputs.
            ignore_index: The label of positions that count in no loss and no metric.
            standardise: Whether the targets of regression are standardised, as for `from_datasets`.
            metric: A name, a `Metric`, or None for the default of the kind.
            recipe: How models are trained; None: `Recipe()`.
            name: What tables and records call the task.

        Returns:
            The task.

        Raises:
            InputError: If a loader gives no batches, or batches that do not fit the kind of task.

        Example:
            >>> import torch
            >>> from evomal import Task
            >>> def batches(seed):
            ...     generator = torch.Generator().manual_seed(seed)
            ...     for length in (5, 3, 8):
            ...         x = torch.randn(4, length, 1, generator=generator)
            ...         yield x, (x.sum((1, 2)) > 0).long()
            >>> class Mean(nn.Module):
            ...     def __init__(self):
            ...         super().__init__()
            ...         self.line = nn.Linear(1, 2)
            ...     def forward(self, x):
            ...         return self.line(x).mean(1)
            >>> Task.from_loaders(batches, batches, batches, model=Mean).recipe.batch_size
            4
        """
        options = DatasetOptions(kind, target, inputs, classes, class_weight, ignore_index, workers, standardise)
        loaders = {"training": train, "validation": validation, "test": test}
        size, fields = loader_fields(loaders, options, model)
        own = Recipe() if recipe is None else recipe
        if isinstance(own, Recipe):  # anything else is refused below
            own = dataclasses.replace(own, batch_size=size)
        return cls(kind=kind, model=model, metric=chosen_metric(metric, kind), name=name, recipe=own, **fields)
