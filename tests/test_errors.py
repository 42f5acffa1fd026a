"""Errors are one sentence, whatever they quote."""

import pickle

import pytest

from evomal.errors import EvomalError, InputError


@pytest.mark.parametrize("kind", [EvomalError, InputError])
def test_a_sentence_is_one_line_that_no_terminal_obeys(kind):
    assert str(kind("a key 'x\ny' and \x1b[2J")).isprintable()
    assert str(kind("plain")) == "plain"
    assert str(kind(ValueError("quoted"))) == "quoted"


def test_a_sentence_has_an_end():
    assert len(str(InputError("x" * 100_000))) == 2_000


def test_an_error_goes_to_another_process_and_back():
    again = pickle.loads(pickle.dumps(InputError("a\nb")))
    assert type(again) is InputError
    assert "\n" not in str(again)
    assert isinstance(again, ValueError)
