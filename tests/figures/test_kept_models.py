"""Kept models: every bit comes back, nothing is unpickled, and what is not such a file is refused in one sentence."""

import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from evomal.engine import CurvePoint, Score
from evomal.errors import InputError
from evomal.figures import kept_models
from evomal.figures.data import trained_models
from evomal.figures.kept_models import find_training, keep_training
from tests.engine.populations import normalised, regression

REFUSAL = r"kept\.npz: is not what evomal writes: remove it to train again$"


class Varied(nn.Module):
    """Tensors of types and shapes that NumPy lacks or that are easily confused."""

    def __init__(self, dtype=torch.bfloat16, rows=3):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, 2, dtype=dtype))
        self.register_buffer("small", torch.zeros(4, dtype=torch.float8_e4m3fn))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("mask", torch.zeros(2, 1, dtype=torch.bool))
        self.register_buffer("nothing", torch.zeros(0, 5))
        self.register_buffer("phase", torch.zeros(2, dtype=torch.complex64))

    def random(self):
        for tensor in self.state_dict().values():
            if tensor.numel():
                high = 2 if tensor.dtype == torch.bool else 256
                tensor.view(-1).view(torch.uint8).random_(0, high)  # NaNs with payloads, too
        return self


def bits(model):
    return {name: tensor.reshape(-1).view(torch.uint8).tolist() for name, tensor in model.state_dict().items()}


@pytest.fixture
def kept(tmp_path):
    """A file, and the score that was kept in it."""
    model = Varied().random()
    curve = [CurvePoint(5, 0.1 + 0.2, float("nan"))]
    score = Score(
        test=1 / 3, validation=0.1, metrics={"rmse": 1 / 7}, curve=curve, seed=3, steps=5, outcome="trained",
        sentence="", milestones=(), model=model,
    )  # fmt: skip
    keep_training(tmp_path / "kept.npz", score)
    return tmp_path / "kept.npz", score


def arrays_in(path):
    with np.load(path, allow_pickle=False) as archive:
        return [archive[name] for name in archive.files]


def test_every_bit_of_every_type_comes_back(kept):
    path, score = kept
    found = find_training(path, Varied)
    assert bits(found.model) == bits(score.model)
    assert (found.test, found.metrics, found.curve[0].training_loss) == (1 / 3, {"rmse": 1 / 7}, 0.1 + 0.2)
    assert np.isnan(found.curve[0].validation)
    assert find_training(path.with_name("none.npz"), Varied) is None


def test_a_training_is_read_where_it_was_kept(tmp_path, monkeypatch):
    def looked_at():
        options = {"seeds": 1, "steps": 20, "device": "cpu", "kept": tmp_path / "models"}
        return next(trained_models(regression(normalised), ["mse"], **options)).score

    before = looked_at()
    monkeypatch.setattr("evomal.figures.data.train", lambda *_, **__: pytest.fail("it was trained again"))
    after = looked_at()
    assert bits(after.model) == bits(before.model)
    assert after == before
    assert not after.model.training


def test_a_diverged_training_needs_no_model(kept):
    path, score = kept
    diverged = Score(**{**vars(score), "outcome": "diverged", "sentence": "it overflowed", "model": None})
    keep_training(path, diverged)
    assert find_training(path, lambda: pytest.fail("a model was made")).sentence == "it overflowed"


@pytest.mark.parametrize(
    "other",
    [lambda: Varied(torch.float16), lambda: Varied(rows=2), lambda: nn.Linear(2, 3), nn.Identity],
    ids=["type", "shape", "names", "none"],
)
def test_the_state_of_another_model_is_refused(kept, other):
    with pytest.raises(InputError, match=REFUSAL):
        find_training(kept[0], other)


def test_other_lengths_types_and_compressed_archives_are_refused(kept):
    path, _ = kept
    text, weight, *others = arrays_in(path)
    for arrays in ([text, weight[:-1], *others], [text, weight.astype(np.uint16), *others], [text, weight]):
        np.savez(path, *arrays)
        with pytest.raises(InputError, match=REFUSAL):
            find_training(path, Varied)
    np.savez_compressed(path, text, weight, *others)  # a small one could hold more than any memory
    with pytest.raises(InputError, match=REFUSAL):
        find_training(path, Varied)


class Malicious:
    def __reduce__(self):
        return os._exit, (77,)


def pickled_array():
    written = io.BytesIO()
    np.save(written, np.array([Malicious()], dtype=object))
    return written.getvalue()


def archive(member):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as opened:
        opened.writestr("arr_0.npy", member)
    return written.getvalue()


def npy(shape, content=b""):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({shape},), }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"damaged",
        pickle.dumps(Malicious()),
        pickled_array(),
        archive(pickled_array()),
        archive(npy(10**15)),  # more than any memory
        archive(npy(2, b"[]")),
        archive(npy(4, b"null")),
        archive(npy(200_000, b"[" * 200_000)),
    ],
    ids=["empty", "text", "pickle", "npy", "npz", "size", "list", "null", "nested"],
)
def test_what_is_no_such_file_is_refused_and_runs_nothing(tmp_path, content):
    path = tmp_path / "kept.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=REFUSAL):
        find_training(path, Varied)


def test_links_pipes_and_files_without_end_are_refused_at_once(kept, monkeypatch):
    path, _ = kept
    monkeypatch.setattr(kept_models, "_LARGEST_FILE", 100)
    with pytest.raises(InputError, match=r"kept\.npz: must have at most 100 bytes but has more$"):
        find_training(path, Varied)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"kept\.npz: must be a regular file but is a link$"):
        find_training(path, Varied)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match=r"kept\.npz: must be a regular file but is a pipe$"):
        find_training(path, Varied)


def test_a_damaged_file_is_refused_or_means_what_it_meant(kept):
    path, score = kept
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    outcomes = set()
    for _ in range(300):
        damaged = bytearray(whole)
        for place in rng.integers(len(whole), size=rng.integers(1, 4)):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged[: rng.integers(len(whole))] if rng.integers(4) == 0 else damaged)
        try:
            found = find_training(path, Varied)
        except InputError:
            outcomes.add("refused")
        else:
            outcomes.add("read")
            assert bits(found.model) == bits(score.model)
            assert json.dumps(found.metrics) == json.dumps(score.metrics)
    assert outcomes == {"refused", "read"}  # a few bytes of an archive mean nothing


class Talkative(nn.Linear):
    """A model that keeps more than tensors."""

    def get_extra_state(self):
        return {"made by": Malicious}

    def set_extra_state(self, state):
        pytest.fail("it was given a state")


def test_a_model_that_is_more_than_tensors_is_not_kept(kept, tmp_path):
    path, score = kept
    other = tmp_path / "other.npz"
    keep_training(other, Score(**{**vars(score), "model": Talkative(2, 3)}))
    assert not other.exists()
    with pytest.raises(InputError, match=REFUSAL):
        find_training(path, lambda: Talkative(2, 3))
