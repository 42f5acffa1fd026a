"""What a user's own model or loss raises in `train` is one sentence, with the error as its cause."""

import pytest
import torch

from evomal.engine import train
from evomal.errors import UserCodeError
from tests.engine.populations import regression


class Loss(torch.nn.Module):
    """A loss that returns, or raises, what it is given."""

    def __init__(self, outcome):
        super().__init__()
        self.outcome = outcome

    def forward(self, output, target):
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize("error", [KeyError("k"), SystemExit(0), RuntimeError("two\nlines")])
def test_what_a_loss_raises(error):
    with pytest.raises(UserCodeError) as caught:
        train(regression(), Loss(error), steps=3, device="cpu")
    line = Loss.forward.__code__.co_firstlineno + 2
    message = " ".join(str(error).split())
    assert str(caught.value) == (
        f"training on {regression().name} failed: {type(error).__name__}: {message} ({__file__}, line {line})"
    )
    assert repr(caught.value.__cause__) == repr(error)  # of the copy of the loss that the training has


@pytest.mark.parametrize("outcome", [None, 1.0, torch.tensor(1.0), torch.ones(2, requires_grad=True)])
def test_a_loss_that_cannot_be_differentiated(outcome):
    with pytest.raises(UserCodeError, match=r"^training on \w+ failed: ") as caught:
        train(regression(), Loss(outcome), steps=3, device="cpu")
    assert "\n" not in str(caught.value)


def test_what_only_torch_raises_is_one_sentence_too():
    """Batch norm cannot train on one sample, which no check on two samples notices."""
    task = regression(lambda: torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)))
    with pytest.raises(UserCodeError, match="Expected more than 1 value per channel when training"):
        train(task, "mse", steps=3, batch_size=1, device="cpu")
