"""Every format: what was written is what is read, and damaged files are refused by name."""

import hashlib
import os

import numpy as np
import pytest
import scipy.io

from evomal.errors import InputError
from evomal.tasks.datasets.readers import (
    BOSTON_FILE,
    CALIFORNIA_FILE,
    MNIST_FILES,
    read_boston,
    read_california,
    read_cifar10,
    read_cifar100,
    read_gzip,
    read_lines,
    read_mnist,
    read_sized,
    read_svhn,
    verify,
)
from tests.tasks.datasets.files import (
    CALIFORNIA_LINES,
    idx,
    write_boston,
    write_cifar10,
    write_cifar100,
    write_mnist,
    write_svhn,
    zipped,
)


def refusal(read, path):
    """The sentence with which a file is refused; it names the file and is one line."""
    with pytest.raises(InputError) as caught:
        read()
    sentence = str(caught.value)
    assert sentence.startswith(f"{path}: ")
    assert "\n" not in sentence
    return sentence


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def poke(path, position, value):
    content = bytearray(path.read_bytes())
    content[position] = value
    path.write_bytes(bytes(content))


# MNIST


def test_mnist_is_read_as_written(tmp_path):
    made = write_mnist(tmp_path)
    data = read_mnist(tmp_path, (7, 3))
    assert data.train_images.shape == (7, 1, 28, 28)
    assert data.train_images.dtype == np.uint8
    assert data.train_labels.dtype == np.int64
    assert data.train_images.flags.writeable  # torch warns about arrays it may not write to
    np.testing.assert_array_equal(data.train_images[:, 0], made[7][0])
    np.testing.assert_array_equal(data.train_labels, made[7][1])
    np.testing.assert_array_equal(data.test_images[:, 0], made[3][0])
    np.testing.assert_array_equal(data.test_labels, made[3][1])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no gzip at all", "not a complete gzip file"),
        (b"", "magic number 0x00000801, but begins with 0x00000000"),
        (zipped(idx([1, 2, 3]))[:-6], "not a complete gzip file"),
        (zipped(idx([1, 2, 3]))[:-8] + b"\0" * 8, "not a complete gzip file: CRC check failed"),
        (zipped(idx([[1, 2, 3]])), "magic number 0x00000801, but begins with 0x00000802"),
        (zipped(idx([1, 2, 3])[:6]), "a header of 8 bytes, but has 6 bytes"),
        (zipped(idx([1, 2])), "an array of 3, but announces 2"),
        (zipped(idx([1, 2, 3])[:-1]), "unpack to 11 bytes, but unpacks to 10"),
        (zipped(idx([1, 2, 3]) + b"\0" * 100), "unpack to 11 bytes, but unpacks to more"),
        (zipped(idx([1, 10, 3])), "labels must be from 0 to 9, but record 1 has 10"),
    ],
)
def test_mnist_refuses_damage(tmp_path, content, said):
    write_mnist(tmp_path)
    path = tmp_path / MNIST_FILES[3]
    path.write_bytes(content)
    assert said in refusal(lambda: read_mnist(tmp_path, (7, 3)), path)


def test_mnist_images_must_be_28_by_28(tmp_path):
    write_mnist(tmp_path)
    path = tmp_path / MNIST_FILES[0]
    path.write_bytes(zipped(idx(np.zeros((7, 14, 56)))))
    assert "7×28×28, but announces 7×14×56" in refusal(lambda: read_mnist(tmp_path, (7, 3)), path)


# CIFAR


def test_cifar10_is_read_as_written(tmp_path):
    made = write_cifar10(tmp_path)
    data = read_cifar10(tmp_path, (20, 4))
    np.testing.assert_array_equal(data.train_images, np.concatenate([images for images, _ in made[:5]]))
    np.testing.assert_array_equal(data.train_labels, np.concatenate([labels for _, labels in made[:5]]))
    np.testing.assert_array_equal(data.test_images, made[5][0])
    np.testing.assert_array_equal(data.test_labels, made[5][1])
    assert data.train_images.flags.writeable
    assert data.train_labels.dtype == np.int64


def test_cifar10_refuses_damage(tmp_path):
    write_cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-bin/data_batch_3.bin"
    poke(path, 2 * 3073, 10)
    assert "labels must be from 0 to 9, but record 2 has 10" in refusal(lambda: read_cifar10(tmp_path, (20, 4)), path)
    cut(path, 3 * 3073)
    said = refusal(lambda: read_cifar10(tmp_path, (20, 4)), path)
    assert "4 records of 3073 bytes must take 12292 bytes, but the file has 9219" in said
    path.unlink()
    assert "no such file" in refusal(lambda: read_cifar10(tmp_path, (20, 4)), path)
    path.mkdir()
    refusal(lambda: read_cifar10(tmp_path, (20, 4)), path)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(path := tmp_path / "pipe")
    for read in (
        lambda: read_sized(path, 0, "nothing"), lambda: read_gzip(path, 10), lambda: read_lines(path),
        lambda: verify(path, "sha256:0"),
    ):  # fmt: skip
        assert "must be a regular file but is a pipe" in refusal(read, path)


def test_cifar100_gives_the_fine_labels(tmp_path):
    made = write_cifar100(tmp_path)
    data = read_cifar100(tmp_path, (6, 4))
    for images, labels, (made_images, fine) in zip(
        (data.train_images, data.test_images), (data.train_labels, data.test_labels), made, strict=True
    ):
        np.testing.assert_array_equal(images, made_images)
        np.testing.assert_array_equal(labels, fine)


@pytest.mark.parametrize(("position", "value", "rule"), [(0, 20, "0 to 19"), (1, 100, "0 to 99")])
def test_cifar100_refuses_labels_out_of_range(tmp_path, position, value, rule):
    write_cifar100(tmp_path)
    path = tmp_path / "cifar-100-binary/test.bin"
    poke(path, 3074 + position, value)
    said = refusal(lambda: read_cifar100(tmp_path, (6, 4)), path)
    assert f"labels must be from {rule}, but record 1 has {value}" in said


@pytest.mark.parametrize("change", [-1, 1, -3074])
def test_cifar100_refuses_a_wrong_length(tmp_path, change):
    write_cifar100(tmp_path)
    path = tmp_path / "cifar-100-binary/train.bin"
    path.write_bytes((path.read_bytes() + b"\0")[: 6 * 3074 + change])
    said = refusal(lambda: read_cifar100(tmp_path, (6, 4)), path)
    assert f"must take 18444 bytes, but the file has {18444 + change}" in said


# SVHN


def svhn_checksums(folder):
    names = ("train_32x32.mat", "test_32x32.mat")
    return {name: f"sha256:{hashlib.sha256((folder / name).read_bytes()).hexdigest()}" for name in names}


@pytest.mark.parametrize("compressed", [True, False])
def test_svhn_is_read_as_written_with_ten_as_zero(tmp_path, compressed):
    made = write_svhn(tmp_path, compressed=compressed)
    data = read_svhn(tmp_path, (6, 4), svhn_checksums(tmp_path))
    np.testing.assert_array_equal(data.train_images, made[0][0])
    np.testing.assert_array_equal(data.test_images, made[1][0])
    assert data.train_labels.tolist() == [0, 1, 2, 9, 0, 3]
    assert data.test_labels.tolist() == [0, 1, 2, 9]
    assert data.train_labels.dtype == np.int64
    assert data.train_images.flags.c_contiguous


@pytest.mark.parametrize("damage", ["cut", "changed", "foreign", "missing"])
def test_svhn_files_with_another_checksum_are_refused_before_they_are_parsed(tmp_path, monkeypatch, damage):
    write_svhn(tmp_path)
    checksums = svhn_checksums(tmp_path)
    path = tmp_path / "train_32x32.mat"
    if damage == "cut":
        cut(path, -9)
    elif damage == "changed":
        middle = path.stat().st_size // 2
        poke(path, middle, path.read_bytes()[middle] ^ 0xFF)
    elif damage == "foreign":
        path.write_bytes(b"<html>not found</html>" * 50)
    else:
        path.unlink()
    monkeypatch.setattr(scipy.io, "loadmat", lambda *_, **__: pytest.fail("the file was parsed"))
    said = refusal(lambda: read_svhn(tmp_path, (6, 4), checksums), path)
    assert ("no such file" if damage == "missing" else "must have the sha256 checksum") in said


def test_svhn_is_read_from_the_published_files_only(tmp_path):
    write_svhn(tmp_path)
    assert "must have the sha256 checksum 435e94d6" in refusal(
        lambda: read_svhn(tmp_path, (6, 4)), tmp_path / "train_32x32.mat"
    )


# Boston


def test_boston_is_read_as_written(tmp_path):
    table = write_boston(tmp_path)
    data = read_boston(tmp_path, (3, 0))
    np.testing.assert_array_equal(data.features, table[:, :13])
    np.testing.assert_array_equal(data.targets, table[:, 13])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("3,13", "4,13", "must begin with the counts 3,13"),
        ('"CRIM","ZN"', '"ZN","CRIM"', "must name the columns"),
        ("0.125", "zero", "line 3 must hold numbers only"),
        ("0.125", "nan", "line 3 must hold finite numbers only"),
        ("0.125", "é", "plain text, but byte"),
        ("0.125,", "", "line 3 must have 14 numbers, but has 13"),
        ("3.5,", "3.5\n", "must have 3 rows, but has 4"),
        (",5.125\n", ",5", "ends in the middle of a line"),
    ],
)
def test_boston_refuses_damage(tmp_path, old, new, said):
    write_boston(tmp_path)
    path = tmp_path / BOSTON_FILE
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert said in refusal(lambda: read_boston(tmp_path, (3, 0)), path)


@pytest.mark.parametrize("content", [b"", b"\n", b"3,13\n"])
def test_boston_refuses_what_has_no_rows(tmp_path, content):
    path = tmp_path / BOSTON_FILE
    path.write_bytes(content)
    refusal(lambda: read_boston(tmp_path, (3, 0)), path)


# California


def test_california_has_the_features_of_scikit_learn(tmp_path):
    (tmp_path / CALIFORNIA_FILE).write_text("".join(CALIFORNIA_LINES))
    data = read_california(tmp_path, (2, 0))
    # The first row as scikit-learn's fetch_california_housing documents it.
    first = [8.3252, 41.0, 6.98412698, 1.02380952, 322.0, 2.55555556, 37.88, -122.23]
    np.testing.assert_allclose(data.features[0], first, rtol=1e-8)
    np.testing.assert_allclose(data.targets, [4.526, 3.585], rtol=1e-15)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (CALIFORNIA_LINES[0], "must have 2 rows, but has 1"),
        ("".join(CALIFORNIA_LINES)[:-8], "ends in the middle of a line"),
        (CALIFORNIA_LINES[0] + "1,2,3\n", "line 2 must have 9 numbers, but has 3"),
        (
            CALIFORNIA_LINES[0] + CALIFORNIA_LINES[1].replace("1138.0", "0.0"),
            "line 2 must count at least one household",
        ),
        (CALIFORNIA_LINES[0] + CALIFORNIA_LINES[1].replace("37.86", "inf,"), "line 2 must have 9 numbers, but has 10"),
        (CALIFORNIA_LINES[0] + CALIFORNIA_LINES[1].replace("37.860000", "inf"), "line 2 must hold finite numbers"),
        ("", "ends in the middle of a line"),
    ],
)
def test_california_refuses_damage(tmp_path, content, said):
    path = tmp_path / CALIFORNIA_FILE
    path.write_text(content)
    assert said in refusal(lambda: read_california(tmp_path, (2, 0)), path)
