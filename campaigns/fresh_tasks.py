"""Tables on which no setting of evomal was chosen, with half of their rows, or more, for the test."""

from typing import Any

import numpy as np
from planted_tasks import mlp
from sklearn.datasets import load_wine, make_circles, make_classification, make_friedman1, make_friedman2

import evomal
from evomal.randomness import generator
from evomal.tasks.task import Task

_ROWS = 4000


def _friedman(name: str, noise: np.ndarray | float, **options: Any) -> Task:
    """Ten features, five of which matter (Friedman's first function)."""
    x, y = make_friedman1(_ROWS, random_state=11)
    return Task.from_arrays(
        x, y + noise, model=mlp(10, 1, 48), kind="regression", validation=0.15, test=0.5, name=name, **options
    )


def friedman_outliers() -> Task:
    """A fifth of the training targets shifted far away."""
    noise = generator(11, "friedman").normal(size=_ROWS)
    return _friedman("friedman, 20 % outliers", noise, hardships=evomal.Hardships(outliers=0.2))


def friedman_skewed() -> Task:
    """Targets with noise that is never negative and often large, in all parts, judged by the absolute error."""
    noise = generator(12, "friedman").exponential(4.0, size=_ROWS)
    return _friedman("friedman, skewed noise", noise, metric="mae")


def friedman_adam() -> Task:
    """Friedman's second function, clean, trained by Adam."""
    x, y = make_friedman2(_ROWS, noise=40.0, random_state=13)
    return Task.from_arrays(
        x, y, model=mlp(4, 1, 32), kind="regression", validation=0.15, test=0.5, name="friedman, clean, Adam",
        recipe=evomal.Recipe(optimizer="adam", lr=1e-3),
    )  # fmt: skip


def _clusters(name: str, **options: Any) -> Task:
    """Five classes of two clusters each in twelve dimensions."""
    x, y = make_classification(
        _ROWS, n_features=12, n_informative=8, n_redundant=2, n_classes=5, n_clusters_per_class=2, class_sep=1.5,
        flip_y=0.0, random_state=14,
    )  # fmt: skip
    return Task.from_arrays(x, y, model=mlp(12, 5, 48), validation=0.15, test=0.5, name=name, **options)


def clusters() -> Task:
    """As they are."""
    return _clusters("clusters, clean")


def clusters_noise() -> Task:
    """30 % of the training labels replaced by any other class."""
    return _clusters("clusters, 30 % wrong labels", hardships=evomal.Hardships(label_noise=0.3))


def clusters_imbalance() -> Task:
    """The smallest training class with a twentieth of the rows of the largest, judged by balanced error."""
    return _clusters("clusters, imbalance 0.05", metric="balanced_error", hardships=evomal.Hardships(imbalance=0.05))


def rings_noise() -> Task:
    """Two rings, one inside the other, with 35 % of the training labels wrong."""
    x, y = make_circles(_ROWS, noise=0.1, factor=0.6, random_state=15)
    return Task.from_arrays(
        x, y, model=mlp(2, 2, 32), validation=0.15, test=0.5, name="rings, 35 % wrong labels",
        hardships=evomal.Hardships(label_noise=0.35),
    )  # fmt: skip


def wine() -> Task:
    """178 rows of three classes (scikit-learn's `load_wine`)."""
    x, y = load_wine(return_X_y=True)
    return Task.from_arrays(x, y, model=mlp(13, 3, 32), test=0.5, name="wine")
