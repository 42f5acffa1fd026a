"""Where the word of one worker differs from another's."""

import pytest

from evomal.runs.executors.worker import differing


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, "a.b.1.c 2 and not 3"),
        ({}, {"numba": "0.6"}, "numba None and not '0.6'"),
        ({"numba": "0.6"}, {}, "numba '0.6' and not None"),
        ({"a": [1, 2]}, {"a": [1]}, "a [1, 2] and not [1]"),
        ({"a": "x" * 100}, {"a": 1}, f"a '{'x' * 58}… and not 1"),
    ],
)
def test_the_innermost_that_differs_is_named_and_not_at_length(found, expected, words):
    assert differing(found, expected) == words
