"""Hardships: noise, outliers, imbalance and scarcity that are added to training data on purpose."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evomal.errors import InputError
from evomal.randomness import generator
from evomal.tasks.splits import RowNumbers
from evomal.text import short_repr

_OUTLIER_SHIFT, _OUTLIER_SPREAD = 4.0, 5.0  # in standard deviations of the targets


@dataclass(frozen=True)
class Hardships:
    """What is done to the training part of a task; validation and test are never changed.

    The defaults change nothing. The hardships are recorded with every result.

    Args:
        label_noise: The share of the labels that is replaced by another class.
        asymmetric: Whether label noise turns a class into the next one instead of any other.
        outliers: The share of the regression targets that is shifted far away.
        imbalance: The size of the rarest class divided by that of the commonest; sizes fall geometrically from class to
            class.
        fraction: The share of the samples that is kept.

    Raises:
        InputError: If a share is out of range.

    Example:
        >>> Hardships(label_noise=0.3).label_noise
        0.3
        >>> Hardships(fraction=2)
        Traceback (most recent call last):
        evomal.errors.InputError: fraction must be a share above 0 and at most 1 but got 2
    """

    label_noise: float = 0.0
    asymmetric: bool = False
    outliers: float = 0.0
    imbalance: float = 1.0
    fraction: float = 1.0

    def __post_init__(self) -> None:
        for name in ("label_noise", "outliers"):
            if not (_is_number(share := getattr(self, name)) and 0 <= share <= 1):
                raise InputError(f"{name} must be a share of 0 to 1 but got {short_repr(share)}")
        for name in ("imbalance", "fraction"):
            if not (_is_number(share := getattr(self, name)) and 0 < share <= 1):
                raise InputError(f"{name} must be a share above 0 and at most 1 but got {short_repr(share)}")
        if not isinstance(self.asymmetric, (bool, np.bool_)):
            raise InputError(f"asymmetric must be True or False but got {short_repr(self.asymmetric)}")

    @property
    def leaves_rows_exchangeable(self) -> bool:
        """Whether the training rows still come from the distribution of the validation rows."""
        return not self.label_noise and not self.outliers and self.imbalance == 1

    def kept_rows(self, rows: RowNumbers, labels: RowNumbers | None, *, seed: int) -> RowNumbers:
        """Return the training rows that imbalance and fraction leave.

        Args:
            rows: The numbers of the training rows.
            labels: The class numbers of all rows, or None where there are no classes.
            seed: Decides which rows are kept.

        Raises:
            InputError: If there is imbalance but no classes.
        """
        if self.imbalance < 1:
            if labels is None:
                raise InputError("imbalance is defined for classes only, one for each sample, but the task has none")
            rows = _imbalanced(labels, rows, self.imbalance, seed)
        if self.fraction < 1:
            kept = max(1, round(len(rows) * self.fraction))
            rows = np.sort(generator(seed, "fraction").choice(rows, kept, replace=False))
        return rows

    def noisy_labels(self, labels: RowNumbers, classes: int, *, seed: int) -> RowNumbers:
        """Return the labels with exactly the share `label_noise` of them replaced, each by another class.

        Args:
            labels: The class numbers of the training rows.
            classes: The number of classes.
            seed: Decides which labels are replaced, and by what.

        Raises:
            InputError: If there are outliers, which only regression has.

        Example:
            >>> int((Hardships(label_noise=0.3).noisy_labels(np.zeros(10, np.int64), 4, seed=0) != 0).sum())
            3
        """
        if self.outliers:
            raise InputError("outliers are defined for regression only, but the task is a classification")
        changed = _chosen(len(labels), self.label_noise, seed, "label noise")
        rng = generator(seed, "wrong labels")
        steps = np.ones(len(changed), np.int64) if self.asymmetric else rng.integers(1, classes, len(changed))
        result = labels.copy()
        result[changed] = (labels[changed] + steps) % classes
        return result

    def outlying_targets(self, targets: npt.NDArray[np.float64], *, seed: int) -> npt.NDArray[np.float64]:
        """Return the targets with the share `outliers` of them shifted by a normal draw of 4 ± 5 standard deviations.

        Args:
            targets: The regression targets of the training rows.
            seed: Decides which targets are shifted, and by how much.

        Raises:
            InputError: If there is label noise, which only classes have.
        """
        if self.label_noise:
            raise InputError("label noise is defined for classes only, but the task is a regression")
        shifted = _chosen(len(targets), self.outliers, seed, "outliers")
        offsets = generator(seed, "outlier offsets").normal(_OUTLIER_SHIFT, _OUTLIER_SPREAD, targets[shifted].shape)
        result = targets.copy()
        result[shifted] += offsets * targets.std(axis=0)
        return result


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _chosen(count: int, share: float, seed: int, purpose: str) -> RowNumbers:
    return generator(seed, purpose).choice(count, round(count * share), replace=False)


def _imbalanced(labels: RowNumbers, rows: RowNumbers, ratio: float, seed: int) -> RowNumbers:
    """Keep ratio^(k / (K − 1)) of the commonest class's size for class k of K, at least one (Cui et al., 2019)."""
    classes, counts = np.unique(labels[rows], return_counts=True)
    kept = []
    for position, label in enumerate(classes):
        wanted = max(1, round(counts.max() * ratio ** (position / max(1, len(classes) - 1))))
        members = rows[labels[rows] == label]
        rng = generator(seed, "imbalance", int(label))
        kept.append(rng.choice(members, min(wanted, len(members)), replace=False))
    return np.sort(np.concatenate(kept))
