"""MATLAB version 5 files as scipy writes them; damage is refused, never fatal."""

import numpy as np
import pytest
import scipy.io

from evomal.errors import InputError
from evomal.tasks.datasets.matlab import read_arrays

TYPES = ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")


@pytest.mark.parametrize("compressed", [True, False])
def test_arrays_of_every_type_agree_with_scipy(tmp_path, compressed):
    path = tmp_path / "arrays.mat"
    rng = np.random.default_rng(0)
    made = {f"a_{kind}_{size}": rng.integers(0, 100, (size, 2, 3)).astype(kind) for kind in TYPES for size in (0, 1, 5)}
    made |= {"one": np.array([[7]], np.uint8), "words": "text", "parts": {"x": 1}, "complex": np.array([[1j]])}
    scipy.io.savemat(path, made, do_compression=compressed)
    read, oracle = read_arrays(path, 1000), scipy.io.loadmat(path)
    assert read.keys() == made.keys() - {"words", "parts", "complex"}
    for name, array in read.items():
        assert array.dtype == oracle[name].dtype
        np.testing.assert_array_equal(array, oracle[name])


def test_doubles_stored_as_bytes_are_doubles(tmp_path):
    # MATLAB does so for arrays of whole numbers; scipy does not write it, so the tag is changed by hand.
    path = tmp_path / "arrays.mat"
    scipy.io.savemat(path, {"y": np.arange(9, dtype=np.uint8)[:, None]})
    content = bytearray(path.read_bytes())
    assert content[128 + 16] == 9  # the class in the array's flags: bytes
    content[128 + 16] = 6  # doubles
    path.write_bytes(bytes(content))
    array = read_arrays(path, 100)["y"]
    assert array.dtype == np.float64
    assert array[:, 0].tolist() == list(range(9))
    np.testing.assert_array_equal(array, scipy.io.loadmat(path)["y"])


def test_an_array_that_unpacks_too_far_is_refused(tmp_path):
    path = tmp_path / "arrays.mat"
    scipy.io.savemat(path, {"X": np.zeros((1000, 1000), np.uint8)}, do_compression=True)
    with pytest.raises(InputError, match="an array takes more than 5000 bytes"):
        read_arrays(path, 5000)


def test_big_endian_and_later_versions_are_refused(tmp_path):
    path = tmp_path / "arrays.mat"
    for ending in (b"\x01\x00MI", b"\x00\x02IM"):
        path.write_bytes(b"MATLAB".ljust(124) + ending)
        with pytest.raises(InputError, match="no little-endian header"):
            read_arrays(path, 100)


@pytest.mark.parametrize("compressed", [True, False])
def test_random_damage_is_refused_or_harmless(tmp_path, compressed):
    path = tmp_path / "arrays.mat"
    scipy.io.savemat(path, {"X": np.ones((4, 3, 2), np.uint8), "y": [[1.0], [2.0]]}, do_compression=compressed)
    content = path.read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(1000):
        damaged = np.frombuffer(content, np.uint8).copy()
        damaged[rng.integers(124, len(damaged), 2)] = rng.integers(0, 256, 2)
        path.write_bytes(damaged.tobytes())
        try:
            read_arrays(path, 1000)
        except InputError:
            refused += 1
    assert refused > 300
