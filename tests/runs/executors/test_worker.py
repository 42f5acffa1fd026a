"""What workers must agree on, and which errors mean that memory was short."""

import pytest
import torch

from evomal.runs.executors.worker import difference, is_out_of_memory


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
