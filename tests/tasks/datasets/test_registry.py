"""Datasets by name, and the folder they are read from."""

import shutil
from pathlib import Path

import numpy as np
import pooch
import pytest

from evomal.errors import InputError
from evomal.tasks.datasets import DATASETS, SOURCES, data_folder, load, missing_files
from tests.tasks.datasets.files import write_boston


def test_the_seven_sets_are_those_of_the_paper():
    rows = {name: (info.rows, info.test_rows, info.shape, info.classes) for name, info in DATASETS.items()}
    assert rows == {
        "diabetes": (442, 0, (10,), None),
        "boston": (506, 0, (13,), None),
        "california": (20640, 0, (8,), None),
        "mnist": (60000, 10000, (1, 28, 28), 10),
        "cifar10": (50000, 10000, (3, 32, 32), 10),
        "cifar100": (50000, 10000, (3, 32, 32), 100),
        "svhn": (73257, 26032, (3, 32, 32), 10),
    }
    assert all((info.classes is None) == (info.kind == "regression") for info in DATASETS.values())


def test_diabetes_needs_no_files(tmp_path):
    data = load("diabetes", tmp_path)
    assert data.features.shape == (442, 10)
    np.testing.assert_allclose(data.features[:, [0, 2]].mean(0), [48.51809955, 26.37579186], rtol=1e-9)
    assert abs(data.targets.mean() - 152.1334841629) < 1e-9
    assert data.features.dtype == data.targets.dtype == np.float64


@pytest.mark.parametrize(
    ("name", "hint"),
    [("cifar-10", "'cifar10'"), ("MNIST", "'mnist'"), ("bostn", "'boston'"), ("x" * 99, "known names are diabetes, ")],
)
def test_an_unknown_name_gets_a_near_one(name, hint):
    with pytest.raises(InputError, match="there is no dataset named") as caught:
        load(name)
    assert hint in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "diabetes"])
def test_a_missing_file_is_named_with_its_place(tmp_path, name):
    first = tmp_path / name / DATASETS[name].files[0]
    assert missing_files(name, tmp_path)[0] == first
    with pytest.raises(InputError, match="which is not there") as caught:
        load(name, tmp_path)
    assert str(first) in str(caught.value)
    assert f"evomal data fetch {name}" in str(caught.value)


def test_the_folder_given_comes_before_the_environment_and_that_before_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EVOMAL_DATA", str(tmp_path / "environment"))
    assert data_folder(tmp_path / "given") == tmp_path / "given"
    assert data_folder() == tmp_path / "environment"
    for unset in ("", None):
        monkeypatch.setenv("EVOMAL_DATA", "") if unset == "" else monkeypatch.delenv("EVOMAL_DATA")
        assert data_folder() == Path(pooch.os_cache("evomal"))
    assert data_folder("~/data") == Path.home() / "data"


def test_load_follows_the_same_precedence(tmp_path, monkeypatch):
    for place in ("given", "environment"):
        (tmp_path / place / "boston").mkdir(parents=True)
    table = write_boston(tmp_path / "given/boston", rows=506)
    shutil.copy(tmp_path / "given/boston/boston_house_prices.csv", tmp_path / "environment/boston")
    other = tmp_path / "environment/boston/boston_house_prices.csv"
    other.write_text(other.read_text().replace("\n0.0,", "\n7.0,", 1))
    monkeypatch.setenv("EVOMAL_DATA", str(tmp_path / "environment"))
    assert load("boston").features[0, 0] == 7.0
    np.testing.assert_array_equal(load("boston", tmp_path / "given").features, table[:, :13])


def test_the_sources_make_up_all_files_of_every_set():
    assert SOURCES.keys() == DATASETS.keys()
    for name, sources in SOURCES.items():
        made = {
            file
            for source in sources
            for file in ([member.name for member in source.members.values()] or (source.file,))
        }
        assert made == set(DATASETS[name].files) or name == "boston"
        for source in sources:
            algorithm, digest = source.checksum.split(":")
            assert (algorithm, len(bytes.fromhex(digest))) == ("sha256", 32)
            assert all(url.startswith("https://") for url in source.urls)
            assert source.urls


def test_a_home_folder_of_nobody_is_refused():
    with pytest.raises(InputError) as caught:
        data_folder("~forged-user")
    assert str(caught.value) == "data must be a folder but got '~forged-user', and there is no such user"
