"""scikit-learn estimators that search for a loss and train a network with the one that is recommended."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from evomal.errors import EvomalError, InputError
from evomal.extras import imports_of
from evomal.text import plural, short_repr

with imports_of("evomal.integrations.sklearn"):
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import check_random_state, compute_class_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

    from evomal.engine import train
    from evomal.engine.resolve import resolve_loss
    from evomal.engine.training import evaluate_model
    from evomal.losses.catalogue import TASK_LOSSES, named_loss
    from evomal.losses.loss import Loss
    from evomal.runs.results import SearchResult
    from evomal.runs.run_loop import search
    from evomal.tasks.building import units_of
    from evomal.tasks.data_checks import check_different_values
    from evomal.tasks.metrics import Measure, Metric
    from evomal.tasks.model_trials import outputs_of_model
    from evomal.tasks.models import make_model
    from evomal.tasks.recipe import Recipe
    from evomal.tasks.task import Task

Array = npt.NDArray[Any]
AnyLoss = Loss | str | os.PathLike[str]

_ARGUMENTS = {"task": "X and y", "seed": "random_state", **{name: name for name in ("method", "preset", "folder")}}
"""Arguments of a search that are not settings, and the arguments that give them here."""


@dataclass(eq=False, repr=False, kw_only=True)  # scikit-learn reads the parameters of __init__
class _LossLearner(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: the search, and the training with its loss on all rows."""

    model: str | Callable[[int, int], nn.Module] = field(default="mlp:hidden=64", kw_only=False)
    loss: AnyLoss | None = None
    method: str = "evomal"
    preset: str = "quick"
    settings: Mapping[str, Any] | None = None
    recipe: Recipe | None = None
    metric: str | Metric | Measure | None = None
    validation_fraction: float = 0.2
    folder: str | os.PathLike[str] | None = None
    device: str = "auto"
    random_state: Any = 0
    _kind: ClassVar[Literal["classification", "regression"]]

    def _fit(self, x: Array, y: Array, outputs: int, sample_weight: Any, class_weight: list[float] | None) -> Self:
        recipe, settings = self._checked_recipe(), self._checked_settings()
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, x, ensure_non_negative=True)
        counted = np.ones(len(x), dtype=bool) if weights is None else weights > 0
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        common: dict[str, Any] = {
            "model": lambda: self._make_model(x.shape[1], outputs), "kind": self._kind, "recipe": recipe,
            "class_weight": class_weight, "name": type(self).__name__, "metric": self.metric,
        }  # fmt: skip
        self._scaler = StandardScaler().fit(x[counted])
        self._units = units_of(y[counted]) if self._kind == "regression" else None
        targets = y if self._units is None else self._units.standardised(y)
        own_weights = () if weights is None else (weights,)
        everything = (self._scaler.transform(x), targets, *own_weights)
        task = Task.from_arrays(train=everything, validation=everything, test=everything, **common, standardise=False)
        if self._kind == "classification":
            _check_width(task, outputs)
        self.result_: SearchResult | None = None
        if self.loss is None:
            # The search does not look at the test part.
            rows = (x, y, *own_weights)
            parts: dict[str, Any] = {"train": rows, "validation": self.validation_fraction, "test": rows}
            self.result_ = search(
                Task.from_arrays(**parts, **common, seed=int(seed)), method=self.method, preset=self.preset,
                seed=int(seed), folder=self.folder, **{"device": self.device, **settings},
            )  # fmt: skip
            # Without a final there is no recommendation, and without a candidate that was trained no best loss.
            chosen = self.result_.recommended or self.result_.best
            found: Loss = named_loss(TASK_LOSSES[self._kind], kind=self._kind) if chosen is None else chosen.loss()
            self.lr_ = recipe.lr
            if chosen is not None:
                self.lr_ = recipe.lr * chosen.rate if chosen.lr is None else chosen.lr
            found.provenance = {**found.provenance, "learning_rate": self.lr_}  # for trainings with the saved loss
            self.loss_ = resolve_loss(found, task)
        else:
            self.loss_ = resolve_loss(self.loss, task)
            self.lr_ = (_found_rate(self.loss_) if self.recipe is None else None) or recipe.lr
        loss = self.loss_
        if isinstance(loss, Loss) and self._kind == "regression":
            loss = loss.in_units(None)  # the targets are standardised here
        score = train(
            task, loss, seed=int(seed), lr=self.lr_, device=self.device, test=False, curve_points=1, keep_model=True
        )
        if score.model is None:
            raise EvomalError(
                f"the training diverged: {score.sentence}: use a lower learning rate, recipe=Recipe(lr=…)"
            )
        self.model_: nn.Module = score.model.cpu()
        return self

    def _checked_recipe(self) -> Recipe:
        if self.recipe is None:
            return Recipe(steps=2000)
        if not isinstance(self.recipe, Recipe):
            raise InputError(f"recipe must be a Recipe but got {short_repr(self.recipe)}")
        return self.recipe

    def _checked_settings(self) -> Mapping[str, Any]:
        given: Any = {} if self.settings is None else self.settings
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise InputError(f"settings must be a dictionary of settings by name but got {short_repr(given)}")
        for name, argument in _ARGUMENTS.items():
            if name in given:
                raise InputError(f"settings must not hold {name}: give {argument} to the estimator")
        return given

    def _make_model(self, features: int, outputs: int) -> nn.Module:
        if isinstance(self.model, str):
            return make_model(self.model, (features,), outputs)
        if isinstance(self.model, nn.Module) or not callable(self.model):
            raise InputError(
                "model must be the name of a model, or a function from the numbers of features and outputs to a fresh "
                f"one, but got {short_repr(self.model)}"
            )
        return self.model(features, outputs)

    def _outputs(self, x: Any) -> Tensor:
        check_is_fitted(self)
        x = validate_data(self, x, reset=False, dtype=(np.float64, np.float32))
        return evaluate_model(self.model_, torch.tensor(self._scaler.transform(x), dtype=torch.float32)).double()


def _check_width(task: Task, classes: int) -> None:
    """Raise unless the model has an output for each class; if it cannot be tried, the training says why."""
    width = outputs_of_model(task.model, task.train)
    if width not in (None, classes):
        raise InputError(f"model must have {plural(classes, 'output')}, one for each class, but has {width}")


def _found_rate(loss: nn.Module) -> float | None:
    """The learning rate that a search found for the loss, as its file names it."""
    rate = loss.provenance.get("learning_rate") if isinstance(loss, Loss) else None
    if not isinstance(rate, int | float) or isinstance(rate, bool):
        return None
    return float(rate) if 0 < rate < math.inf else None


@dataclass(eq=False, repr=False, kw_only=True)
class EvomalClassifier(ClassifierMixin, _LossLearner):  # type: ignore[misc]
    """A classifier that searches for a loss, then trains a network with the loss that the search recommends.

    `fit` sets a share of the rows aside to judge losses on, searches, and trains the network on all rows with the
    recommended loss and learning rate: the learned loss if it leads the known ones, else the best of these. A search
    takes minutes. To use one loss in a cross-validation, search once and give it as `loss`.

    Features are standardised. Labels may be numbers or texts.

    Args:
        model: The name of a model (`mlp:hidden=64`, `logistic`), or a function from the numbers of features and
            outputs to a fresh network.
        loss: The loss to train with, without a search: one of evomal's losses, a name (`focal:gamma=3`) or a loss file.
        method: The method of the search: see `evomal methods`.
        preset: `quick`, `thorough` or `paper`.
        settings: Settings of the search that differ from the preset, and `jobs`, the number of its processes.
        recipe: How networks are trained; by default `Recipe(steps=2000)`, for a given loss with the learning rate that
            its file names, if it names one.
        metric: What the search judges losses by; by default the error rate.
        validation_fraction: The share of the rows that the search judges losses on.
        folder: The folder to record the search in; it is resumed if the folder holds it.
        device: `auto`, `cpu`, `cuda`, `cuda:0` or `mps`.
        class_weight: `balanced`, or a weight for each class by its label.
        random_state: The seed of everything that is drawn.

    Attributes:
        classes_: The labels.
        result_: The result of the search; None if the loss was given.
        loss_: The loss that the network was trained with.
        lr_: The learning rate that the network was trained with.
        model_: The trained network, which takes standardised features.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from evomal import Recipe
        >>> x, y = load_iris(return_X_y=True)
        >>> classifier = EvomalClassifier(loss="ce", recipe=Recipe(steps=200), device="cpu").fit(x, y)
        >>> classifier.score(x, y) > 0.9
        True
    """

    _kind = "classification"
    class_weight: Mapping[Any, float] | str | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Search for a loss, unless one is given, and train the network with it.

        Args:
            X: The features, a row for each sample.
            y: The label of each sample.
            sample_weight: How much each sample counts; by default all count alike. Rows of weight 0 are left out.

        Returns:
            The classifier itself.

        Raises:
            InputError: The data do not fit, there are fewer than two classes, or a setting breaks its rule.
            EvomalError: The training diverged.

        Example:
            >>> EvomalClassifier().fit(x, y).result_.summary()  # doctest: +SKIP
        """
        x, y = validate_data(self, X, y, dtype=(np.float64, np.float32), ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y must hold at least two classes but got one class, {short_repr(self.classes_[0])}")
        weights = None
        if self.class_weight is not None:
            weights = compute_class_weight(self.class_weight, classes=self.classes_, y=y).tolist()
        return self._fit(x, numbers, len(self.classes_), sample_weight, weights)

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Returns the probability of each class for each row, in the order of `classes_`."""
        return self._outputs(X).softmax(1).numpy()

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Returns the label of each row."""
        chosen = self._outputs(X).argmax(1).numpy()
        return np.asarray(self.classes_[chosen])


class EvomalRegressor(RegressorMixin, _LossLearner):  # type: ignore[misc]
    """A regressor that searches for a loss, then trains a network with the loss that the search recommends.

    See `EvomalClassifier`. Features and targets are standardised inside; predictions are in the units of the targets.
    Targets may have several columns.

    Args:
        model: The name of a model (`mlp:hidden=64`, `logistic`), or a function from the numbers of features and
            outputs to a fresh network.
        loss: The loss to train with, without a search: one of evomal's losses, a name (`huber:delta=2`) or a loss file.
        method: The method of the search: see `evomal methods`.
        preset: `quick`, `thorough` or `paper`.
        settings: Settings of the search that differ from the preset, and `jobs`, the number of its processes.
        recipe: How networks are trained; by default `Recipe(steps=2000)`, for a given loss with the learning rate that
            its file names, if it names one.
        metric: What the search judges losses by; by default the mean squared error.
        validation_fraction: The share of the rows that the search judges losses on.
        folder: The folder to record the search in; it is resumed if the folder holds it.
        device: `auto`, `cpu`, `cuda`, `cuda:0` or `mps`.
        random_state: The seed of everything that is drawn.

    Attributes:
        result_: The result of the search; None if the loss was given.
        loss_: The loss that the network was trained with.
        lr_: The learning rate that the network was trained with.
        model_: The trained network, from standardised features to standardised targets.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> from evomal import Recipe
        >>> x, y = load_diabetes(return_X_y=True)
        >>> regressor = EvomalRegressor(loss="huber", recipe=Recipe(steps=200), device="cpu").fit(x, y)
        >>> 100 < float(regressor.predict(x).mean()) < 200
        True
    """

    _kind = "regression"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Search for a loss, unless one is given, and train the network with it.

        Args:
            X: The features, a row for each sample.
            y: The target of each sample, or several in columns.
            sample_weight: How much each sample counts; by default all count alike. Rows of weight 0 are left out.

        Returns:
            The regressor itself.

        Raises:
            InputError: The data do not fit, or a setting breaks its rule.
            EvomalError: The training diverged.

        Example:
            >>> EvomalRegressor().fit(x, y).result_.summary()  # doctest: +SKIP
        """
        x, y = validate_data(
            self, X, y, dtype=(np.float64, np.float32), ensure_min_samples=2, multi_output=True, y_numeric=True
        )
        y = y.astype(np.float64)
        check_different_values(y.reshape(len(y), -1), "y")
        self._is_single = y.ndim == 1
        return self._fit(x, y, 1 if y.ndim == 1 else y.shape[1], sample_weight, None)

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Returns the predictions for each row, in the units of the targets."""
        outputs = self._outputs(X)
        outputs = outputs.squeeze(1) if self._is_single else outputs
        assert self._units is not None
        return self._units.raw(outputs).numpy()
