"""Errors are one sentence, whatever they quote."""

import pickle

import pytest

from evomal.errors import EvomalError, InputError


@pytest.mark.parametrize("kind", [EvomalError, InputError])
def test_a_sentence_is_one_line_that_no_terminal_obeys(kind):
    assert str(kind("a key 'x\ny' and \x1b[2J")).isprintable()
    assert str(kind("plain")) == "plain"
    assert str(kind(ValueError("quoted"))) == "quoted"


def test_a_long_sentence_keeps_its_end():
    sentence = str(InputError(f"{'x' * 100_000}: is not a folder"))
    assert len(sentence) == 2_000
    assert sentence.endswith("xx: is not a folder")


def test_an_error_goes_to_another_process_and_back():
    again = pickle.loads(pickle.dumps(InputError("a\nb")))
    assert type(again) is InputError
    assert "\n" not in str(again)
    assert isinstance(again, ValueError)
