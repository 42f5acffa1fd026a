"""Trained models in files: NumPy archives of bytes and one JSON text, read without pickle.

The first array holds the score and the name, type and shape of each tensor as JSON; the others hold the bytes of the
tensors, since NumPy lacks some of torch's types. A file is read only if it describes the tensors of the task's own
model, so that nothing in it decides what is built.
"""

import dataclasses
import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from evomal.engine import Score
from evomal.errors import InputError
from evomal.files import find_foreign, write_atomically
from evomal.runs.canonical import canonical, parsed
from evomal.verdict.comparison import score_from_dict, score_to_dict

_LARGEST_FILE, _LONGEST_TEXT = 4_000_000_000, 64_000_000  # bytes


def keep_training(path: Path, score: Score) -> None:
    """Write a score and its model; a model whose state is more than ordinary tensors is not kept but trained again."""
    state = {} if score.model is None else score.model.state_dict()
    if not _is_ordinary(state):
        return
    text = canonical({"score": score_to_dict(score), "model": _described(state)})
    written = io.BytesIO()
    np.savez(written, np.frombuffer(text.encode(), np.uint8), *map(_bytes_of, state.values()))
    write_atomically(path, written.getvalue())


def find_training(path: Path, make: Callable[[], nn.Module]) -> Score | None:
    """Return the score in a file, with its model on the CPU unless the training diverged; None without a file.

    Args:
        path: The file.
        make: Makes a model like the one that was trained.

    Raises:
        InputError: The file is not one that `keep_training` wrote for such a model.
    """
    content = find_foreign(path, limit=_LARGEST_FILE)
    if content is None:
        return None
    refusal = InputError(f"{path}: is not what evomal writes: remove it to train again")
    try:
        text, *arrays = _arrays_in(content)
        found = parsed(text[:_LONGEST_TEXT].tobytes().decode())
        score, described = score_from_dict(found["score"]), found["model"]
    except Exception:  # zipfile and NumPy can raise anything for a damaged file
        raise refusal from None
    if score.diverged:
        return score
    model = make()
    state = model.state_dict()
    if (
        not _is_ordinary(state)
        or described != _described(state)
        or [*map(len, arrays)] != [*map(_size, state.values())]
    ):
        raise refusal
    tensors = {name: torch.empty(own.shape, dtype=own.dtype) for name, own in state.items()}
    for array, tensor in zip(arrays, tensors.values(), strict=True):
        tensor.view(-1).view(torch.uint8).copy_(torch.from_numpy(array))
    model.load_state_dict(tensors)
    return dataclasses.replace(score, model=model)


def _is_ordinary(state: Mapping[str, Any]) -> bool:
    """Whether a state has nothing but tensors that are plain memory; a module may add anything to its state."""
    return all(isinstance(own, Tensor) and own.layout is torch.strided for own in state.values())


def _described(state: Mapping[str, Tensor]) -> list[list[Any]]:
    return [[name, str(own.dtype), list(own.shape)] for name, own in state.items()]


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _bytes_of(tensor: Tensor) -> npt.NDArray[np.uint8]:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _arrays_in(content: bytes) -> list[npt.NDArray[np.uint8]]:
    """The arrays of an archive, in order; ValueError for compressed ones, which may be larger than any memory."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
    are_stored = all(one.compress_type == zipfile.ZIP_STORED for one in members)
    if not are_stored or sum(one.file_size for one in members) > len(content):
        raise ValueError
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = [archive[f"arr_{place}"] for place in range(len(members))]
    if any(array.dtype != np.uint8 or array.ndim != 1 for array in arrays):
        raise ValueError
    return arrays
