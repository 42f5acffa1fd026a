"""Tasks of campaigns that are not built in: planted outliers and wrong labels, on MNIST also in the validation rows."""

from collections.abc import Callable

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch import nn

import evomal
from evomal.randomness import generator
from evomal.tasks.task import Task


def table(kind: str, *, seed: int = 0, rows: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """A table with a smooth relation, for planted hardships."""
    draws = generator(seed, "planted", kind)
    features = draws.normal(size=(rows, 8)).astype(np.float32)
    signal = np.sin(features[:, 0]) + features[:, 1] * features[:, 2] / 2 + features[:, 3] / 2
    if kind == "regression":
        return features, (signal + draws.normal(size=rows) / 10).astype(np.float32)
    edges = np.quantile(signal, [0.25, 0.5, 0.75])
    return features, np.digitize(signal, edges)


def mlp(inputs: int, outputs: int, width: int = 64) -> Callable[[], nn.Module]:
    """A small network of two hidden layers."""
    return lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


def planted_outliers() -> Task:
    """2 000 rows, 30 % of the training targets shifted far away."""
    x, y = table("regression")
    return Task.from_arrays(
        x, y, model=mlp(8, 1), kind="regression", hardships=evomal.Hardships(outliers=0.3), name="planted outliers"
    )


def planted_labels(rows: int = 2000) -> Task:
    """Rows of four classes, 40 % of the training labels wrong."""
    x, y = table("classification", rows=rows)
    return Task.from_arrays(
        x, y, model=mlp(8, 4), hardships=evomal.Hardships(label_noise=0.4), name="planted wrong labels"
    )


def noisy(dataset: str, model: str, share: float, *, is_asymmetric: bool = False) -> Task:
    """20 000 training rows and 5 000 validation rows with that share of wrong labels, the test rows with right ones."""
    task = evomal.load_task(dataset, model)
    draws = generator(0, f"noisy {dataset}")
    parts = []
    for part, rows in ((task.train, 20_000), (task.validation, 5_000)):
        targets = part.targets[:rows].clone()
        wrong = torch.from_numpy(draws.random(rows) < share)
        shift = torch.from_numpy(draws.integers(1, 10, size=rows))
        targets[wrong] = (targets[wrong] + (1 if is_asymmetric else shift[wrong])) % 10
        parts.append(type(part)(part.inputs[:rows], targets))
    kind = ", to the next class," if is_asymmetric else ""
    return Task(
        "classification", *parts, task.test, task.model, task.metric, 10,
        f"{dataset}, {100 * share:.0f} % wrong labels{kind}".rstrip(","), task.augmentation, task.recipe,
        exchangeable=True,
    )  # fmt: skip


def noisy_mnist() -> Task:
    """MNIST, 40 % wrong labels, any other class."""
    return noisy("mnist", "mlp:hidden=128", 0.4)


def noisier_mnist() -> Task:
    """MNIST, 60 % wrong labels, any other class."""
    return noisy("mnist", "mlp:hidden=128", 0.6)


def asymmetric_mnist() -> Task:
    """MNIST, 40 % wrong labels, always the next class."""
    return noisy("mnist", "mlp:hidden=128", 0.4, is_asymmetric=True)


def noisy_cifar10() -> Task:
    """CIFAR-10 with a small CNN, 40 % wrong labels, any other class."""
    return noisy("cifar10", "lenet5", 0.4)


def noisier_cifar10() -> Task:
    """CIFAR-10 with a small CNN, 60 % wrong labels, any other class."""
    return noisy("cifar10", "lenet5", 0.6)


def asymmetric_cifar10() -> Task:
    """CIFAR-10 with a small CNN, 40 % wrong labels, always the next class."""
    return noisy("cifar10", "lenet5", 0.4, is_asymmetric=True)


def digits(*, metric: str = "error_rate", **hardships: float) -> Task:
    """1 797 scans of 8 × 8 pixels (scikit-learn's `load_digits`) with a hardship in the training rows."""
    x, y = load_digits(return_X_y=True)
    return Task.from_arrays(
        (x / 16).astype(np.float32), y, model=mlp(64, 10), metric=metric, hardships=evomal.Hardships(**hardships),
        name=f"digits, {', '.join(f'{name} {value:g}' for name, value in hardships.items())}",
    )  # fmt: skip


def noisy_digits() -> Task:
    """Digits, 40 % wrong training labels."""
    return digits(label_noise=0.4)


def noisier_digits() -> Task:
    """Digits, 60 % wrong training labels."""
    return digits(label_noise=0.6)


def unequal_digits() -> Task:
    """Digits, the smallest training class with a twentieth of the rows of the largest, judged by balanced error."""
    return digits(metric="balanced_error", imbalance=0.05)


def noisy_breast_cancer() -> Task:
    """569 rows of two classes (scikit-learn's `load_breast_cancer`), 30 % of the training labels wrong."""
    x, y = load_breast_cancer(return_X_y=True)
    return Task.from_arrays(
        x, y, model=mlp(30, 2), hardships=evomal.Hardships(label_noise=0.3), name="breast cancer, 30 % wrong labels"
    )
