"""Whose code it is, and where in it something was raised."""

import json
import sys

import torch

from evomal.users_code import own_folder, place_of_error, place_of_function


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
