"""Training data made hard the way real data is hard; validation and test are never touched."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evomal.errors import InputError
from evomal.randomness import generator

_OUTLIER_SHIFT, _OUTLIER_SPREAD = 4.0, 5.0  # in standard deviations of the targets

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Hardships:
    """Which hardships, and how much of each; all zero or one means none. Recorded with every result."""

    label_noise: float = 0.0
    """Share of the labels replaced by another class."""
    asymmetric: bool = False
    """Whether noise turns a class into the next one instead of any other."""
    outliers: float = 0.0
    """Share of the regression targets thrown far off."""
    imbalance: float = 1.0
    """Size of the rarest class over that of the commonest, falling geometrically from class to class."""
    fraction: float = 1.0
    """Share of the samples kept."""

    def __post_init__(self) -> None:
        for name in ("label_noise", "outliers"):
            if not 0 <= (share := getattr(self, name)) <= 1:
                raise InputError(f"{name} must be a share of 0 to 1 but got {share}")
        for name in ("imbalance", "fraction"):
            if not 0 < (share := getattr(self, name)) <= 1:
                raise InputError(f"{name} must be a share above 0 and at most 1 but got {share}")


def hardened_rows(labels: Rows | None, rows: Rows, hardships: Hardships, *, seed: int) -> Rows:
    """The training rows that are left after imbalance and fraction."""
    if hardships.imbalance < 1:
        if labels is None:
            raise InputError("imbalance is of classes, so a regression task takes none")
        rows = _imbalanced(labels, rows, hardships.imbalance, seed)
    if hardships.fraction < 1:
        kept = max(1, round(len(rows) * hardships.fraction))
        rows = np.sort(generator(seed, "fraction").choice(rows, kept, replace=False))
    return rows


def noisy_labels(labels: Rows, classes: int, hardships: Hardships, *, seed: int) -> Rows:
    """Labels of which a share is wrong: exactly that share, and every changed one differs from what it was."""
    if hardships.outliers:
        raise InputError("outliers are of regression targets, so a classification task takes none")
    changed = _chosen(len(labels), hardships.label_noise, seed, "label noise")
    rng = generator(seed, "wrong labels")
    steps = np.ones(len(changed), np.int64) if hardships.asymmetric else rng.integers(1, classes, len(changed))
    result = labels.copy()
    result[changed] = (labels[changed] + steps) % classes
    return result


def outlying_targets(targets: npt.NDArray[np.float64], hardships: Hardships, *, seed: int) -> npt.NDArray[np.float64]:
    """Targets of which a share is shifted up by about four of their standard deviations, give or take five."""
    if hardships.label_noise:
        raise InputError("label noise is of classes, so a regression task takes none")
    thrown = _chosen(len(targets), hardships.outliers, seed, "outliers")
    offsets = generator(seed, "outlier offsets").normal(_OUTLIER_SHIFT, _OUTLIER_SPREAD, targets[thrown].shape)
    result = targets.copy()
    result[thrown] += offsets * targets.std(axis=0)
    return result


def _chosen(count: int, share: float, seed: int, purpose: str) -> Rows:
    return generator(seed, purpose).choice(count, round(count * share), replace=False)


def _imbalanced(labels: Rows, rows: Rows, ratio: float, seed: int) -> Rows:
    """Class k of K keeps ratio^(k / (K − 1)) of the commonest class's size (Cui et al., 2019), at least one sample."""
    classes, counts = np.unique(labels[rows], return_counts=True)
    kept = []
    for position, label in enumerate(classes):
        wanted = max(1, round(counts.max() * ratio ** (position / max(1, len(classes) - 1))))
        members = rows[labels[rows] == label]
        rng = generator(seed, "imbalance", int(label))
        kept.append(rng.choice(members, min(wanted, len(members)), replace=False))
    return np.sort(np.concatenate(kept))
