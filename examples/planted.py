"""Tasks whose right kind of loss is known, to see whether a search finds it.

`evomal search examples/planted.py:outliers`: regression in which a quarter of the training targets are thrown far to
one side, with clean validation and test. Squared error chases the outliers; a loss that stops growing does not.

`evomal search examples/planted.py:wrong_labels`: classification with 30 % of the training labels replaced at random.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import evomal

FEATURES, CLASSES, TRAINING, OTHER = 6, 4, 600, 600
OUTLIERS, SHIFT, SPREAD = 0.25, 4.0, 5.0


def outliers(seed: int = 0) -> evomal.Task:
    """A smooth target of six features; of the training targets a quarter is off by 4 ± 5 deviations."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(TRAINING + 2 * OTHER, FEATURES))
    y = np.sin(x @ rng.normal(size=FEATURES)) + 0.5 * x[:, 0] * x[:, 1]
    y = (y - y.mean()) / y.std()
    thrown = np.flatnonzero(rng.random(TRAINING) < OUTLIERS)
    y[thrown] += SHIFT + SPREAD * rng.normal(size=len(thrown))
    return _task("outliers", x, torch.tensor(y, dtype=torch.float32), "regression", 1)


def wrong_labels(seed: int = 0) -> evomal.Task:
    """Four classes by the largest of four random directions; 30 % of the training labels are replaced."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(TRAINING + 2 * OTHER, FEATURES))
    labels = (np.tanh(x) @ rng.normal(size=(FEATURES, CLASSES))).argmax(1)
    labels[:TRAINING] = evomal.Hardships(label_noise=0.3).noisy_labels(labels[:TRAINING], CLASSES, seed=seed)
    return _task("wrong labels", x, torch.tensor(labels), "classification", CLASSES)


def _task(name: str, x: np.ndarray, targets: torch.Tensor, kind: str, outputs: int) -> evomal.Task:
    """The rows in order: first those for training, then validation, then test."""
    inputs = torch.tensor(x, dtype=torch.float32)
    sizes = (TRAINING, OTHER, OTHER)
    parts = map(TensorDataset, inputs.split(sizes), targets.split(sizes))

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))

    return evomal.Task.from_datasets(*parts, model=model, kind=kind, name=name)
