"""The tasks with wrong rows again, with as many training rows as are right there, and none that are wrong."""

from planted_tasks import mlp, table
from sklearn.datasets import make_friedman1

import evomal
from evomal.randomness import generator
from evomal.tasks.task import Task


def planted_regression() -> Task:
    """70 % of the training rows of `planted_outliers`."""
    x, y = table("regression")
    return Task.from_arrays(
        x, y, model=mlp(8, 1), kind="regression", hardships=evomal.Hardships(fraction=0.7), name="planted, 70 % of rows"
    )


def friedman() -> Task:
    """80 % of the training rows of `friedman_outliers`."""
    x, y = make_friedman1(4000, random_state=11)
    noise = generator(11, "friedman").normal(size=4000)
    return Task.from_arrays(
        x, y + noise, model=mlp(10, 1, 48), kind="regression", validation=0.15, test=0.5,
        hardships=evomal.Hardships(fraction=0.8), name="friedman, 80 % of rows",
    )  # fmt: skip


def planted_classes() -> Task:
    """60 % of the training rows of `planted_labels`."""
    x, y = table("classification")
    return Task.from_arrays(
        x, y, model=mlp(8, 4), hardships=evomal.Hardships(fraction=0.6), name="planted classes, 60 % of rows"
    )


def mnist() -> Task:
    """The rows of `noisy_mnist`, with right labels: 12 000 for training, 3 000 for validation."""
    task = evomal.load_task("mnist", "mlp:hidden=128")
    parts = [
        type(part)(part.inputs[:rows], part.targets[:rows])
        for part, rows in ((task.train, 12_000), (task.validation, 3_000))
    ]
    return Task(
        "classification", *parts, task.test, task.model, task.metric, 10, "mnist, 12,000 rows", task.augmentation,
        task.recipe, exchangeable=True,
    )  # fmt: skip
