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

from evomal import Recipe, save_loss
from evomal.errors import EvomalError, InputError
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


def test_without_a_final_it_is_the_best_loss_and_without_that_the_baseline():
    found = regressor(loss=None, settings={**TINY, "finalists": 0}).fit(*DIABETES)
    assert found.result_.recommended is None
    assert str(found.loss_) == str(found.result_.best.loss())
    nothing = classifier(loss=None, settings={**TINY, "filters": ("rejection",), "filter_steps": 1}).fit(*IRIS)
    assert nothing.result_.best is None
    assert (nothing.loss_, nothing.lr_) == ("ce", SHORT.lr)


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
        (lambda: classifier(model=3).fit(*IRIS), "model must be the name of a model, or a function from the numbers"),
        (lambda: classifier(loss="hinge").fit(*IRIS), "there is no 'hinge'"),
        (lambda: classifier(loss=None, settings={"population": 0}).fit(*IRIS), "population must be"),
    ],
)
def test_what_is_refused(fit, sentence):
    with pytest.raises(InputError, match=sentence):
        fit()


def test_a_training_that_diverges_is_a_sentence():
    with pytest.raises(EvomalError, match=r"the training diverged: .*: use a lower learning rate"):
        regressor(loss="mse", recipe=Recipe(steps=60, lr=1e9)).fit(*DIABETES)
