"""Tasks with few validation rows and many test rows, on which no setting and no rule was chosen."""

import dataclasses

import numpy as np
import torch
from planted_tasks import mlp
from sklearn.datasets import make_classification, make_friedman2, make_sparse_uncorrelated

import evomal
from evomal.randomness import generator
from evomal.tasks.task import Task

_TEST_ROWS = 8000


def _shortened(task: Task, name: str, *, train: int, validation: int) -> Task:
    """The task with few training and validation rows and at most 8 000 test rows, drawn at random.

    The rows of a part can be in an order that means something: California's are sorted by place, so that its first
    250 validation rows are of one region.
    """
    counts = {"train": train, "validation": validation, "test": min(_TEST_ROWS, len(task.test))}
    parts = {}
    for part, count in counts.items():
        rows = getattr(task, part)
        drawn = generator(0, "rows", part).permutation(len(rows))[:count]
        parts[part] = rows.select(torch.as_tensor(drawn))
    return dataclasses.replace(task, name=name, **parts)


def _split(x: np.ndarray, y: np.ndarray, *, validation: int, name: str, **options: object) -> Task:
    """A task with given splits: 8 000 test rows, and the rest for training."""
    first, second = len(x) - _TEST_ROWS - validation, len(x) - _TEST_ROWS
    parts = [(x[rows], y[rows]) for rows in (slice(first), slice(first, second), slice(second, None))]
    return Task.from_arrays(train=parts[0], validation=parts[1], test=parts[2], name=name, **options)  # type: ignore[arg-type]


def california_outliers() -> Task:
    """A fifth of the training targets shifted far away."""
    task = evomal.load_task("california", "mlp:hidden=64", hardships=evomal.Hardships(outliers=0.2))
    return _shortened(task, "california, 20 % outliers", train=2000, validation=250)


def mnist_labels() -> Task:
    """30 % of the training labels wrong, any other class."""
    task = evomal.load_task("mnist", "mlp:hidden=64", hardships=evomal.Hardships(label_noise=0.3))
    return _shortened(task, "mnist, 30 % wrong labels", train=3000, validation=300)


def sparse_outliers() -> Task:
    """Ten features of which four matter, 15 % of the training targets shifted far away."""
    x, y = make_sparse_uncorrelated(1500 + 250 + _TEST_ROWS, random_state=31)
    return _split(
        x, y, validation=250, name="sparse, 15 % outliers", model=mlp(10, 1, 48), kind="regression",
        hardships=evomal.Hardships(outliers=0.15),
    )  # fmt: skip


def _clusters(seed: int, rows: int, validation: int, name: str, **options: object) -> Task:
    """Four classes of two clusters each in ten dimensions."""
    x, y = make_classification(
        rows + validation + _TEST_ROWS, n_features=10, n_informative=7, n_redundant=1, n_classes=4,
        n_clusters_per_class=2, class_sep=1.3, flip_y=0.0, random_state=seed,
    )  # fmt: skip
    return _split(x, y, validation=validation, name=name, model=mlp(10, 4, 48), **options)


def next_labels() -> Task:
    """35 % of the training labels wrong, always the next class."""
    hard = evomal.Hardships(label_noise=0.35, asymmetric=True)
    return _clusters(32, 2000, 400, "clusters, 35 % wrong labels", hardships=hard)


def unequal() -> Task:
    """The rarest class has 3 % as many training rows as the most frequent one."""
    hard = evomal.Hardships(imbalance=0.03)
    return _clusters(33, 4000, 400, "clusters, imbalance 0.03", metric="balanced_error", hardships=hard)


def clean() -> Task:
    """Friedman's second function with little noise."""
    x, y = make_friedman2(1000 + 300 + _TEST_ROWS, random_state=34)
    noise = 20.0 * generator(34, "rows").normal(size=len(x))
    return _split(x, y + noise, validation=300, name="friedman 2, clean", model=mlp(4, 1, 48), kind="regression")
