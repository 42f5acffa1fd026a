"""Families of learned losses: the known loss whose gradient has the most similar shape (EvoMAL, section 5.3)."""

from dataclasses import dataclass

import numpy as np

from evomal.checks import Kind
from evomal.figures.loss_shape import loss_curves, shape_positions
from evomal.figures.style import FloatArray
from evomal.losses.catalogue import specified_loss
from evomal.losses.loss import Loss

_KNOWN: dict[Kind, tuple[str, ...]] = {
    "classification": ("ce", "label-smoothing", "label-smoothing:smoothing=0.3", "focal", "focal:gamma=5", "gce", "sce",
                       "nce-rce", "poly-1"),
    "multilabel": ("ce", "label-smoothing", "focal", "gce"),
    "regression": ("mse", "mae", "huber", "log-cosh", "cauchy", "welsch", "tukey", "tukey:c=2"),
}  # fmt: skip
_POINTS, _SIMILAR = 201, 0.95


@dataclass(frozen=True)
class SimilarLoss:
    """The known loss that a loss resembles most."""

    name: str
    similarity: float
    """The cosine of the two gradients, over probabilities or errors; 1 for multiples of one another."""

    def __str__(self) -> str:
        return f"like {self.name} ({self.similarity:.2f})" if self.similarity >= _SIMILAR else "its own"


def family(loss: Loss, *, classes: int = 10) -> SimilarLoss:
    """The known loss whose gradient, by the target's logit or by the output, is most similar in shape.

    Args:
        loss: The loss.
        classes: The number of classes at which losses for classification are compared.

    Returns:
        The most similar known loss; its similarity says whether that means anything.

    Example:
        >>> import evomal
        >>> str(family(evomal.ExpressionLoss("tanh(square(sub(y, f)))", kind="regression")))
        'like welsch (0.98)'
    """
    own = _gradient(loss, classes)
    known = {name: _gradient(specified_loss(name, kind=loss.kind), classes) for name in _KNOWN[loss.kind]}
    found = [SimilarLoss(name, float(own @ other)) for name, other in known.items()]
    return max(found, key=lambda one: one.similarity)


def _gradient(loss: Loss, classes: int) -> FloatArray:
    """The gradient as a vector of length 1; where it is not finite, 0."""
    positions = shape_positions(loss.kind, points=_POINTS, classes=classes)
    curves, _ = loss_curves(loss, positions, classes=classes)
    with np.errstate(all="ignore"):
        joined = np.concatenate([curve.gradient for curve in curves])
        finite = np.nan_to_num(joined, nan=0.0, posinf=0.0, neginf=0.0)
        scaled = finite / (np.abs(finite).max() or 1.0)  # so that no square overflows
    length = float(np.linalg.norm(scaled)) or 1.0
    direction: FloatArray = scaled / length
    return direction
