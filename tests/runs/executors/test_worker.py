"""What workers must agree on, and which errors mean that memory was short."""

import pytest
import torch

from evomal.runs.executors.worker import difference, is_out_of_memory


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


def test_what_torch_raises_for_too_much_at_once_is_a_memory_error():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_other_memory_errors_are_known_by_their_class_or_words(error, expected):
    assert is_out_of_memory(error) is expected
