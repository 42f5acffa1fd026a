"""Tables that were written after `scaled_to` and the rule of what a search recommends had been chosen."""

from typing import Any

import numpy as np
from planted_tasks import digits, mlp
from sklearn.datasets import load_breast_cancer, make_friedman3, make_gaussian_quantiles, make_hastie_10_2

import evomal
from evomal.randomness import generator
from evomal.tasks.task import Task

_ROWS = 4000


def _friedman3(name: str, noise: np.ndarray, **options: Any) -> Task:
    """Four features whose effects are not additive (Friedman's third function)."""
    x, y = make_friedman3(_ROWS, random_state=21)
    return Task.from_arrays(
        x, y + noise, model=mlp(4, 1, 48), kind="regression", validation=0.15, test=0.5, name=name, **options
    )


def outliers() -> Task:
    """A quarter of the training targets shifted far away."""
    noise = 0.1 * generator(21, "unseen").normal(size=_ROWS)
    return _friedman3("friedman 3, 25 % outliers", noise, hardships=evomal.Hardships(outliers=0.25))


def heavy_tails() -> Task:
    """Noise of Student's t distribution with two degrees of freedom in all rows, judged by the absolute error."""
    noise = 0.2 * generator(22, "unseen").standard_t(2, size=_ROWS)
    return _friedman3("friedman 3, heavy tails", noise, metric="mae")


def clean_regression() -> Task:
    """Little noise, and a learning rate that falls along a cosine."""
    noise = 0.05 * generator(23, "unseen").normal(size=_ROWS)
    return _friedman3("friedman 3, clean", noise, recipe=evomal.Recipe(schedule="cosine"))


def wrong_labels() -> Task:
    """Four shells of a normal distribution in six dimensions, a quarter of the training labels wrong, by Adam."""
    x, y = make_gaussian_quantiles(n_samples=_ROWS, n_features=6, n_classes=4, random_state=24)
    return Task.from_arrays(
        x, y, model=mlp(6, 4, 48), validation=0.15, test=0.5, name="shells, 25 % wrong labels",
        hardships=evomal.Hardships(label_noise=0.25), recipe=evomal.Recipe(optimizer="adam", lr=1e-3),
    )  # fmt: skip


def next_labels() -> Task:
    """Digits, 30 % of the training labels wrong, always the next class."""
    return digits(label_noise=0.3, asymmetric=True)


def unequal() -> Task:
    """Two classes in ten dimensions, one with a twentieth of the training rows of the other."""
    x, y = make_hastie_10_2(2 * _ROWS, random_state=25)
    return Task.from_arrays(
        x, (y > 0).astype(int), model=mlp(10, 2, 48), validation=0.15, test=0.5, name="sphere, imbalance 0.05",
        metric="balanced_error", hardships=evomal.Hardships(imbalance=0.05),
    )  # fmt: skip


def clean_labels() -> Task:
    """569 rows of two classes (scikit-learn's `load_breast_cancer`)."""
    x, y = load_breast_cancer(return_X_y=True)
    return Task.from_arrays(x, y, model=mlp(30, 2, 32), test=0.5, name="breast cancer")
