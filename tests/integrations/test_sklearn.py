"""The estimators: what scikit-learn asks of estimators, searches inside them, and predictions in raw units."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator

from evomal import Recipe, Units, load_loss, save_loss
from evomal.errors import EvomalError, InputError
from evomal.integrations import sklearn as sklearn_module
from evomal.integrations.sklearn import EvomalClassifier, EvomalRegressor
from evomal.losses import FocalLoss, HuberLoss
from tests.protocols import ONE_TRAINING

SHORT = Recipe(steps=60, lr=0.1, batch_size=32)
TINY = {
    **ONE_TRAINING, "filters": (), "population": 4, "generations": 1, "meta_steps": 1, "training_steps": 5,
    "final_steps": 20,
}  # fmt: skip
IRIS, DIABETES = load_iris(return_X_y=True), load_diabetes(return_X_y=True)

EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "batches are drawn by rows, whatever the weights of these",
    "check_methods_subset_invariance": "outputs are computed in single precision, in which seven digits agree",
}


def classifier(**changes):
    return EvomalClassifier(**{"loss": "ce", "recipe": SHORT, "device": "cpu", **changes})


def regressor(**changes):
    return EvomalRegressor(**{"loss": "huber", "recipe": SHORT, "device": "cpu", **changes})


@pytest.mark.long
@pytest.mark.parametrize("make", [classifier, regressor])
def test_what_scikit_learn_asks_of_estimators(make):
    estimator = make(recipe=Recipe(steps=150, lr=0.05, batch_size=32))
    outcomes = check_estimator(estimator, on_skip=None, on_fail=None, expected_failed_checks=EXPECTED_FAILURES)
    assert [outcome["check_name"] for outcome in outcomes if outcome["status"] == "failed"] == []
    assert len(outcomes) > 50


@pytest.mark.parametrize(("make", "data"), [(classifier, IRIS), (regressor, DIABETES)], ids=["classes", "values"])
def test_a_search_and_then_a_training_with_the_recommended_loss(make, data, tmp_path):
    estimator = make(loss=None, settings=TINY, folder=tmp_path / "run").fit(*data)
    assert estimator.result_.folder == tmp_path / "run"
    recommended = estimator.result_.recommended
    assert str(estimator.loss_) == str(recommended.loss())
    assert estimator.lr_ == SHORT.lr * recommended.rate
    again = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(again.predict(data[0]), estimator.predict(data[0]))
    resumed = clone(estimator).fit(*data)  # nothing is computed again but the training
    np.testing.assert_array_equal(resumed.predict(data[0]), estimator.predict(data[0]))


def test_without_a_final_it_is_the_best_loss_and_without_that_the_baseline(tmp_path):
    found = regressor(loss=None, settings={**TINY, "finalists": 0}).fit(*DIABETES)
    assert found.result_.recommended is None
    assert str(found.loss_) == str(found.result_.best.loss())
    nothing = classifier(loss=None, settings={**TINY, "filters": ("rejection",), "filter_steps": 1}).fit(*IRIS)
    assert nothing.result_.best is None
    assert (nothing.loss_.catalogue_name, nothing.lr_) == ("ce", SHORT.lr)
    save_loss(nothing.loss_, tmp_path / "mine.json")
    assert load_loss(tmp_path / "mine.json").provenance["learning_rate"] == SHORT.lr


def test_labels_are_texts_and_probabilities_are_in_the_order_of_the_classes():
    x, y = IRIS[0], np.array(["setosa", "versicolor", "virginica"])[IRIS[1]]
    found = classifier().fit(x, y)
    assert found.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert found.score(x, y) > 0.9
    probabilities = found.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (found.classes_[probabilities.argmax(1)] == found.predict(x)).all()


def test_predictions_are_in_the_units_of_the_targets():
    x, y = DIABETES
    found = regressor(loss=HuberLoss(delta=1.0)).fit(x, y)
    assert found.predict(x).shape == y.shape
    assert found.score(x, y) > 0.4
    scaled = regressor(loss=HuberLoss(delta=1.0)).fit(x, 1e6 + 1e4 * y)
    np.testing.assert_allclose(scaled.predict(x), 1e6 + 1e4 * found.predict(x), rtol=1e-4)
    several = regressor().fit(x, np.column_stack([y, -1000 * y]))
    assert several.predict(x).shape == (len(x), 2)
    assert several.score(x, np.column_stack([y, -1000 * y])) > 0.4


def test_a_loss_file_trains_as_the_loss_does_whatever_its_units(tmp_path):
    x, y = DIABETES
    units = Units(float(y.mean()), float(y.std()))
    save_loss(HuberLoss(delta=1.0).in_units(units), tmp_path / "mine.json")
    found = regressor(loss=tmp_path / "mine.json").fit(x, y)
    assert found.loss_.units == units
    np.testing.assert_array_equal(found.predict(x), regressor(loss="huber:delta=1").fit(x, y).predict(x))


@pytest.mark.parametrize(("named", "rate"), [(0.25, 0.25), ("0.25", 0.01), (True, 0.01), (-1.0, 0.01)])
def test_the_learning_rate_of_a_loss_file_is_that_of_the_default_recipe(named, rate, tmp_path, monkeypatch):
    save_loss(FocalLoss(), tmp_path / "mine.json", provenance={"learning_rate": named})
    monkeypatch.setattr(sklearn_module, "Recipe", lambda steps: Recipe(steps=3))
    assert classifier(loss=tmp_path / "mine.json", recipe=None).fit(*IRIS).lr_ == rate
    monkeypatch.undo()
    assert classifier(loss=tmp_path / "mine.json").fit(*IRIS).lr_ == SHORT.lr


@pytest.mark.parametrize(("make", "data"), [(classifier, IRIS), (regressor, DIABETES)], ids=["classes", "values"])
def test_rows_of_weight_zero_change_nothing(make, data):
    x, y = data
    added = np.vstack([x, 1e6 + x[:20]]), np.concatenate([y, y[:20] if make is classifier else 1e6 + y[:20]])
    found = make().fit(*added, sample_weight=np.repeat([1.0, 0.0], [len(x), 20]))
    np.testing.assert_array_equal(found.predict(x), make().fit(x, y, sample_weight=np.ones(len(x))).predict(x))


def test_a_class_of_weight_zero_is_a_class():
    x, y = IRIS
    found = classifier().fit(x, y, sample_weight=(y != 2).astype(float))
    assert found.predict_proba(x).shape == (150, 3)
    assert (found.predict(x) != 2).all()


def test_pipelines_cross_validation_and_grids():
    x, y = IRIS
    pipeline = make_pipeline(PolynomialFeatures(2), classifier(model="logistic"))
    assert cross_val_score(pipeline, x, y, cv=2).mean() > 0.85
    grid = GridSearchCV(pipeline, {"evomalclassifier__loss": ["ce", "focal:gamma=3"]}, cv=2).fit(x, y)
    assert grid.best_params_["evomalclassifier__loss"] in ("ce", "focal:gamma=3")


def test_losses_models_and_weights_may_be_your_own(tmp_path):
    x, y = IRIS
    save_loss(FocalLoss(2.0), tmp_path / "mine.json")

    def make_net(features, outputs):
        return torch.nn.Sequential(torch.nn.Linear(features, 8), torch.nn.Tanh(), torch.nn.Linear(8, outputs))

    found = classifier(loss=tmp_path / "mine.json", model=make_net, class_weight="balanced").fit(x, y)
    assert found.score(x, y) > 0.85
    only_two = classifier(class_weight={0: 1.0, 1: 1.0, 2: 1e-6}).fit(x, y)
    assert (only_two.predict(x) != 2).all()
    weighted = classifier().fit(x, y, sample_weight=np.where(y == 2, 1e-6, 1.0))
    assert (weighted.predict(x) != 2).all()


def test_the_seed_decides():
    x, y = DIABETES
    first, again, other = (regressor(random_state=seed).fit(x, y).predict(x) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    drawn = regressor(random_state=np.random.RandomState(0)).fit(x, y).predict(x)
    assert (drawn == regressor(random_state=np.random.RandomState(0)).fit(x, y).predict(x)).all()


@pytest.mark.parametrize(
    ("fit", "sentence"),
    [
        (lambda: classifier().fit(IRIS[0], np.zeros(150)), "at least two classes but got one class"),
        (lambda: regressor().fit(IRIS[0], np.ones(150)), r"^targets of y must differ .* but all 150 are 1\.0$"),
        (lambda: classifier(model=3).fit(*IRIS), "model must be the name of a model, or a function from the numbers"),
        (lambda: classifier(loss="hinge").fit(*IRIS), "there is no 'hinge'"),
        (lambda: classifier(loss=None, settings={"population": 0}).fit(*IRIS), "population must be"),
        (lambda: classifier(loss=None, settings={"jobs": 0}).fit(*IRIS), "jobs must be at least 1 but got 0"),
        (lambda: classifier(model=lambda features, _: torch.nn.Linear(features, 5)).fit(*IRIS), "3 outputs, .* has 5"),
        (lambda: classifier(model=lambda features, _: torch.nn.Linear(features, 1)).fit(IRIS[0], IRIS[1] > 0), "has 1"),
        (lambda: classifier(recipe=30).fit(*IRIS), "recipe must be a Recipe but got 30"),
        (lambda: classifier(settings=[1]).fit(*IRIS), r"settings must be a dictionary .* but got \[1\]"),
        (lambda: classifier(settings={1: 2}).fit(*IRIS), "settings must be a dictionary .* but got {1: 2}"),
        (lambda: classifier(settings={"seed": 1}).fit(*IRIS), "not hold seed: give random_state to the estimator"),
        (lambda: classifier(settings={"preset": "x"}).fit(*IRIS), "not hold preset: give preset to the estimator"),
    ],
)
def test_what_is_refused(fit, sentence):
    with pytest.raises(InputError, match=sentence):
        fit()


def test_a_training_that_diverges_is_a_sentence():
    with pytest.raises(EvomalError, match=r"the training diverged: .*: use a lower learning rate"):
        regressor(loss="mse", recipe=Recipe(steps=60, lr=1e9)).fit(*DIABETES)
