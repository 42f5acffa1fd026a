"""Which errors tell of too little memory."""

import pytest
import torch

from evomal.runs.executors.local import is_out_of_memory


def test_what_torch_raises_for_too_much_at_once_is_one():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_others_are_known_by_their_class_or_words(error, is_one):
    assert is_out_of_memory(error) is is_one
