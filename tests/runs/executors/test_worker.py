"""What workers must agree on."""

import pytest

from evomal.runs.executors.worker import difference


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, "a.b.1.c 2 instead of 3"),
        ({}, {"numba": "0.6"}, "numba None instead of '0.6'"),
        ({"numba": "0.6"}, {}, "numba '0.6' instead of None"),
        ({"a": [1, 2]}, {"a": [1]}, "a [1, 2] instead of [1]"),
        ({"a": "x" * 100}, {"a": 1}, f"a '{'x' * 58}… instead of 1"),
    ],
)
def test_the_innermost_difference_is_named_and_shortened(found, expected, words):
    assert difference(found, expected) == words
