"""Whose code it is, and where in it something was raised."""

import json
import sys

import pytest
import torch

from evomal.errors import EvomalError, InputError, UserCodeError
from evomal.users_code import own_folder, place_of_error, place_of_function, users_code


def raising():
    raise ZeroDivisionError


def caught(work):
    try:
        work()
    except Exception as error:
        return error


def test_what_is_not_installed_is_the_user_s():
    assert own_folder(__file__).endswith("tests")
    assert own_folder(torch.__file__) is None
    assert own_folder(json.__file__) is None
    assert own_folder(sys.modules["evomal.users_code"].__file__) is None


def test_the_innermost_place_in_the_user_s_code():
    assert place_of_error(caught(raising)) == f"{__file__}, line {raising.__code__.co_firstlineno + 1}"
    inner = caught(lambda: torch.ones(2) @ torch.ones(3))
    assert place_of_error(inner).startswith(f"{__file__}, line ")
    assert place_of_error(ValueError("never raised")) == ""


def test_where_a_function_is():
    assert place_of_function(raising) == f"{__file__}, line {raising.__code__.co_firstlineno}"
    assert place_of_function(json.dumps) == ""
    assert place_of_function(len) == ""


class WordlessError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_what_the_user_s_code_raises_is_one_sentence_with_its_cause():
    line = raising.__code__.co_firstlineno + 1
    with pytest.raises(UserCodeError) as caught, users_code("the metric hits"):
        raising()
    assert str(caught.value) == f"the metric hits failed: ZeroDivisionError ({__file__}, line {line})"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("error", "text"),
    [(SystemExit(3), "SystemExit: 3"), (WordlessError(), "WordlessError"), (ValueError("a\n\nb"), "ValueError: a b")],
)
def test_whatever_is_raised_is_reported(error, text):
    with pytest.raises(InputError, match=f"^it failed: {text} \\("), users_code("it", InputError):
        raise error


@pytest.mark.parametrize("error", [EvomalError("a sentence"), KeyboardInterrupt()])
def test_sentences_and_interruptions_pass(error):
    with pytest.raises(type(error)) as caught, users_code("it"):
        raise error
    assert caught.value is error
