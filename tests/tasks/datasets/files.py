"""Small data files in the exact original formats, with the arrays they were made of."""

import gzip
import struct

import numpy as np
import scipy.io

from evomal.tasks.datasets.readers import BOSTON_COLUMNS, BOSTON_FILE, CIFAR10_FILES, MNIST_FILES


def zipped(content):
    """The same bytes at every time of day: parametrised tests must be the same in every process."""
    return gzip.compress(content, mtime=0)


def random_images(seed, rows, shape=(3, 32, 32)):
    return np.random.default_rng(seed).integers(0, 256, (rows, *shape), dtype=np.uint8)


def random_labels(seed, rows, classes):
    return np.random.default_rng(seed).integers(0, classes, rows)


def idx(array):
    """The IDX bytes of an array of bytes."""
    array = np.asarray(array, np.uint8)
    return struct.pack(f">I{array.ndim}I", 0x0800 | array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder, rows=(7, 3)):
    made = {}
    for (images_name, labels_name), count in zip((MNIST_FILES[:2], MNIST_FILES[2:]), rows, strict=True):
        images, labels = random_images(count, count, (28, 28)), random_labels(count, count, 10)
        (folder / images_name).write_bytes(zipped(idx(images)))
        (folder / labels_name).write_bytes(zipped(idx(labels)))
        made[count] = images, labels
    return made


def records(images, *label_columns):
    """Label bytes, then the three planes, one record after the other."""
    columns = [np.asarray(column, np.uint8)[:, None] for column in label_columns]
    return np.concatenate([*columns, images.reshape(len(images), -1)], axis=1).tobytes()


def write_cifar10(folder, rows=4):
    made = []
    for seed, name in enumerate(CIFAR10_FILES):
        (folder / name).parent.mkdir(exist_ok=True)
        images, labels = random_images(seed, rows), random_labels(seed, rows, 10)
        (folder / name).write_bytes(records(images, labels))
        made.append((images, labels))
    return made


def write_cifar100(folder, rows=(6, 4)):
    made = []
    (folder / "cifar-100-binary").mkdir()
    for name, count in zip(("train", "test"), rows, strict=True):
        images, coarse, fine = (
            random_images(count, count),
            random_labels(count, count, 20),
            random_labels(9, count, 100),
        )
        (folder / f"cifar-100-binary/{name}.bin").write_bytes(records(images, coarse, fine))
        made.append((images, fine))
    return made


def write_svhn(folder, rows=(6, 4), labels=(10, 1, 2, 9, 10, 3), compressed=True):
    made = []
    for name, count in zip(("train", "test"), rows, strict=True):
        images = random_images(count, count)
        matlab = np.asfortranarray(images.transpose(2, 3, 1, 0))
        variables = {"X": matlab, "y": np.asarray(labels[:count], np.uint8)[:, None]}
        scipy.io.savemat(folder / f"{name}_32x32.mat", variables, do_compression=compressed)
        made.append((images, np.asarray(labels[:count])))
    return made


def write_boston(folder, rows=3):
    table = np.arange(rows * 14).reshape(rows, 14) / 8
    lines = [f"{rows},13" + "," * 12, ",".join(f'"{name}"' for name in BOSTON_COLUMNS)]
    lines += [",".join(map(str, row)) for row in table]
    (folder / BOSTON_FILE).write_text("\n".join(lines) + "\n")
    return table


CALIFORNIA_LINES = (
    "-122.230000,37.880000,41.000000,880.000000,129.000000,322.000000,126.000000,8.325200,452600.000000\n",
    "-122.220000,37.860000,21.000000,7099.000000,1106.000000,2401.000000,1138.000000,8.301400,358500.000000\n",
)
