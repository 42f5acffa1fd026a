"""A model that ends in probabilities is warned of once; an ordinary one never is."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import evomal
from evomal.engine.logits import warn_of_probabilities
from evomal.tasks.task import Task
from tests.engine.populations import classification, regression

FAST = {"steps": 2, "device": "cpu"}
SENTENCE = (
    r"^the outputs of the model of \S+ look like {}, but losses take logits and make probabilities of them "
    r"themselves: remove the final {} of the model$"
)


class Ending(nn.Module):
    """A linear layer, and a function of its outputs."""

    def __init__(self, function, outputs=3):
        super().__init__()
        self.layer, self.function = nn.Linear(4, outputs), function

    def forward(self, x):
        return self.function(self.layer(x))


def by_hand(logits):
    exponents = logits.exp()
    return exponents / exponents.sum(1, keepdim=True)


PROBABILITIES = {
    "softmax": (nn.Softmax(dim=1), "probabilities", "softmax"),
    "over the samples": (nn.Softmax(dim=0), "probabilities", "softmax"),
    "by hand": (by_hand, "probabilities", "softmax"),
    "reshaped": (lambda logits: logits.softmax(1).t().contiguous().t(), "probabilities", "softmax"),
    "detached layer": (lambda logits: logits.detach().softmax(1) + 0 * logits, "probabilities", "softmax"),
    "log-softmax": (nn.LogSoftmax(dim=1), "logarithms of probabilities", "log-softmax"),
    "log by hand": (lambda logits: by_hand(logits).log(), "logarithms of probabilities", "log-softmax"),
    "sigmoid": (torch.sigmoid, "probabilities", "sigmoid"),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_probabilities_are_warned_of_once_for_a_task(name):
    function, what, layer = PROBABILITIES[name]
    task = classification(lambda: Ending(function))
    with pytest.warns(UserWarning, match=SENTENCE.format(what, layer)) as seen:
        evomal.train(task, "ce", **FAST)
    assert len(seen) == 1
    evomal.train(task, "focal", seed=1, **FAST)  # a warning would be an error here


def multilabel(model):
    draws = np.random.default_rng(0)
    x = draws.normal(size=(60, 4))
    return Task.from_arrays(x, (x[:, :3] > 0).astype(int), model=model, kind="multilabel")


def test_a_search_and_tasks_of_other_kinds_warn_too():
    targets = np.arange(60) % 2
    binary = Task.from_arrays(
        np.random.default_rng(0).normal(size=(60, 4)), targets, model=lambda: Ending(torch.sigmoid, 1)
    )
    for task in (multilabel(lambda: Ending(torch.sigmoid)), binary):
        with pytest.warns(UserWarning, match=SENTENCE.format("probabilities", "sigmoid")):
            evomal.train(task, "ce", **FAST)
    settings = {"population": 3, "generations": 1, "meta_steps": 1, "training_steps": 2, "final_steps": 2}
    with pytest.warns(UserWarning, match=SENTENCE.format("probabilities", "softmax")) as seen:
        evomal.search(classification(lambda: Ending(nn.Softmax(1))), method="random", device="cpu", **settings)
    assert len(seen) == 1


@pytest.mark.parametrize(
    "ending",
    [nn.Identity(), torch.relu, torch.tanh, lambda logits: logits.sigmoid() * 4 - 2, lambda logits: 0 * logits,
     lambda logits: logits - logits.max(1, keepdim=True).values],
    ids=["logits", "relu", "tanh", "stretched", "zeros", "shifted"],
)  # fmt: skip
@pytest.mark.parametrize("make", [classification, multilabel])
def test_logits_of_any_kind_are_not(make, ending):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evomal.train(make(lambda: Ending(ending)), "ce", **FAST)


def test_values_may_be_anything():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evomal.train(regression(lambda: Ending(torch.sigmoid, 1)), "mse", **FAST)


def test_random_logits_are_never_taken_for_probabilities():
    draws, task = torch.Generator().manual_seed(0), classification()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2_000):
            rows, outputs = torch.randint(1, 4, (2,), generator=draws).tolist()
            logits = torch.randn(rows, outputs, generator=draws) * 10 ** torch.randn((), generator=draws)
            warn_of_probabilities(logits.abs() if rows == 2 else logits, task)


def test_the_trial_changes_no_number(monkeypatch):
    def score(known):
        monkeypatch.setattr("evomal.engine.resolve.needs_no_warning", lambda _: known)
        return evomal.train(classification(lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))), "ce", **FAST)

    before = torch.get_rng_state()
    assert score(known=True) == score(known=False)
    assert torch.equal(torch.get_rng_state(), before)
