"""The engine as its documentation shows it."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["engine", "scores", "full_training"])
def test_the_examples_of_the_documentation(name):
    found = doctest.testmod(importlib.import_module(f"evomal.engine.{name}"))
    assert (found.failed, found.attempted > 0) == (0, True)
