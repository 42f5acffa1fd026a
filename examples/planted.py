"""Tasks whose right kind of loss is known, to see whether a search finds it.

`evomal search examples/planted.py:outliers`: regression in which a quarter of the training targets are thrown far to
one side, with clean validation and test. Squared error chases the outliers; a loss that stops growing does not.

`evomal search examples/planted.py:wrong_labels`: classification with 30 % of the training labels replaced at random.
"""

import itertools

import numpy as np
import torch
from torch import nn

from evomal.tasks.hardships import Hardships, noisy_labels
from evomal.tasks.metrics import chosen_metric
from evomal.tasks.task import Part, Recipe, Task

FEATURES, CLASSES, TRAINING, OTHER = 6, 4, 600, 600
OUTLIERS, SHIFT, SPREAD = 0.25, 4.0, 5.0


def outliers(seed: int = 0) -> Task:
    """A smooth target of six features; of the training targets a quarter is off by 4 ± 5 deviations."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(TRAINING + 2 * OTHER, FEATURES))
    y = np.sin(x @ rng.normal(size=FEATURES)) + 0.5 * x[:, 0] * x[:, 1]
    y = (y - y.mean()) / y.std()
    thrown = np.flatnonzero(rng.random(TRAINING) < OUTLIERS)
    y[thrown] += SHIFT + SPREAD * rng.normal(size=len(thrown))
    return _task("outliers", x, y[:, None], "regression", 1)


def wrong_labels(seed: int = 0) -> Task:
    """Four classes by the largest of four random directions; 30 % of the training labels are drawn anew."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(TRAINING + 2 * OTHER, FEATURES))
    labels = (np.tanh(x) @ rng.normal(size=(FEATURES, CLASSES))).argmax(1)
    labels[:TRAINING] = noisy_labels(labels[:TRAINING], CLASSES, Hardships(label_noise=0.3), seed=seed)
    return _task("wrong labels", x, labels, "classification", CLASSES)


def _task(name: str, x: np.ndarray, y: np.ndarray, kind: str, outputs: int) -> Task:
    inputs = torch.tensor(x, dtype=torch.float32)
    targets = torch.tensor(y, dtype=torch.float32 if kind == "regression" else torch.int64)
    bounds = (0, TRAINING, TRAINING + OTHER, TRAINING + 2 * OTHER)
    train, validation, test = (
        Part(inputs[start:stop], targets[start:stop]) for start, stop in itertools.pairwise(bounds)
    )
    return Task(
        kind=kind,
        train=train,
        validation=validation,
        test=test,
        model=lambda: nn.Sequential(
            nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs)
        ),
        metric=chosen_metric(None, kind),
        outputs=outputs,
        name=name,
        recipe=Recipe(),
        record={"dataset": name},
    )
