"""The published files themselves, where they are at hand: shapes, class counts and means known from elsewhere."""

import os

import numpy as np
import pytest

from evomal.tasks.datasets import DATASETS, load, missing_files

FOLDER = os.environ.get("EVOMAL_DATA")


def loaded(name):
    if not FOLDER:
        pytest.skip("EVOMAL_DATA names no folder with the published files")
    if missing_files(name, FOLDER):
        pytest.skip(f"the folder EVOMAL_DATA names has not all files of {name}")
    data = load(name, FOLDER)
    info = DATASETS[name]
    if info.kind == "regression":
        assert data.features.shape == (info.rows, *info.shape)
        assert data.features.dtype == data.targets.dtype == np.float64
    else:
        assert data.train_images.shape == (info.rows, *info.shape)
        assert data.test_images.shape == (info.test_rows, *info.shape)
        assert set(data.test_labels.tolist()) == set(range(info.classes))
    return data


def channel_means(images):
    return images.mean((0, 2, 3)) / 255


def test_mnist():
    data = loaded("mnist")
    assert np.bincount(data.train_labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.test_labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    np.testing.assert_allclose(channel_means(data.train_images), [0.1306605], atol=1e-7)
    np.testing.assert_allclose(channel_means(data.test_images), [0.1325146], atol=1e-7)
    assert abs(data.train_images.std() / 255 - 0.3081078) < 1e-7
    assert data.train_labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]


def test_cifar10():
    data = loaded("cifar10")
    assert np.bincount(data.train_labels).tolist() == [5000] * 10
    assert np.bincount(data.test_labels).tolist() == [1000] * 10
    np.testing.assert_allclose(channel_means(data.train_images), [0.4913997, 0.4821584, 0.4465309], atol=1e-7)
    np.testing.assert_allclose(channel_means(data.test_images), [0.4942143, 0.4851314, 0.4504091], atol=1e-7)
    np.testing.assert_allclose(data.train_images.std((0, 2, 3)) / 255, [0.2470, 0.2435, 0.2616], atol=1e-4)
    assert data.train_labels[:8].tolist() == [6, 9, 9, 4, 1, 1, 2, 7]


def test_california():
    data = loaded("california")
    means = [3.870671003, 28.63948643, 5.428999742, 1.09667515, 1425.476744, 3.070655159, 35.63186143, -119.5697045]
    np.testing.assert_allclose(data.features.mean(0), means, rtol=1e-9)
    assert abs(data.targets.mean() - 2.0685581691) < 1e-9


def test_boston():
    data = loaded("boston")
    assert abs(data.targets.mean() - 22.5328063241) < 1e-9
    assert abs(data.features[:, 0].mean() - 3.613523557) < 1e-8
    assert abs(data.features[:, 12].mean() - 12.65306324) < 1e-8
    assert data.features[:, 3].sum() == 35  # tracts on the river


@pytest.mark.parametrize(
    ("name", "train_means"),
    [("cifar100", [0.5071, 0.4867, 0.4408]), ("svhn", [0.4380, 0.4440, 0.4730])],
)
def test_sets_that_are_rarely_at_hand(name, train_means):
    data = loaded(name)
    assert np.unique(data.train_labels).tolist() == list(range(DATASETS[name].classes))
    np.testing.assert_allclose(channel_means(data.train_images), train_means, atol=5e-4)
