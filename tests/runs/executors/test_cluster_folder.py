"""The temporary folder of a cluster that is started here."""

import os
import re
import tempfile

import pytest

from evomal.errors import InputError
from evomal.runs.executors import cluster as module
from evomal.runs.executors import worker_pool
from evomal.runs.executors.cluster import _LONGEST_FOLDER, _temporary_folder
from evomal.settings import SearchSettings


def test_every_cluster_has_a_private_folder_that_is_removed_with_its_content(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_FOLDER", 1000)
    place = tmp_path / "new"
    monkeypatch.setenv("RAY_TMPDIR", str(place))
    with _temporary_folder() as first, _temporary_folder() as second:
        assert first != second
        assert first.parent == place
        assert first.stat().st_mode & 0o777 == 0o700
        (first / "session" / "logs").mkdir(parents=True)
        (first / "session" / "logs" / "log").write_text("a line")
    assert list(place.iterdir()) == []


def test_it_is_in_the_temporary_folder_unless_ray_has_one(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_FOLDER", 1000)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with _temporary_folder() as folder:
        assert folder.parent == tmp_path


def test_a_file_that_is_written_while_it_is_removed_is_removed_too(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_FOLDER", 1000)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    removed, calls = module.shutil.rmtree, []

    def refusing_once(folder, ignore_errors):
        calls.append(folder)
        if len(calls) > 1:
            removed(folder, ignore_errors=ignore_errors)

    monkeypatch.setattr(module.shutil, "rmtree", refusing_once)
    with _temporary_folder():
        pass
    assert len(calls) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_too_long_for_a_socket_is_one_sentence(rays_folder, monkeypatch):
    added = len("/ray-") + 8
    for length in (_LONGEST_FOLDER - added, _LONGEST_FOLDER - added + 1):
        name = "é" + "p" * (length - len(os.fsencode(rays_folder)) - 3)  # é has two bytes
        monkeypatch.setenv("RAY_TMPDIR", str(rays_folder / name))
        if length == _LONGEST_FOLDER - added:
            with _temporary_folder() as folder:
                assert len(os.fsencode(folder)) == _LONGEST_FOLDER
            continue
        with pytest.raises(InputError) as caught, _temporary_folder():
            pass
        sentence = (
            "no Ray cluster could be started here: the path of its temporary folder must have at most "
            f"{_LONGEST_FOLDER} bytes but {rays_folder / name}/ray-XXXXXXXX has {_LONGEST_FOLDER + 1}: set RAY_TMPDIR "
            "to a shorter path"
        )
        assert re.sub(r"(?<=/ray-)\w{8}(?= has)", "XXXXXXXX", str(caught.value)) == sentence
        assert list((rays_folder / name).iterdir()) == []


def test_a_place_that_is_no_folder_is_one_sentence(rays_folder, monkeypatch):
    (rays_folder / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(rays_folder / "file"))
    with pytest.raises(InputError) as caught, _temporary_folder():
        pass
    assert str(caught.value) == f"no Ray cluster could be started here: {rays_folder / 'file'}: File exists"


def test_a_cluster_that_cannot_be_started_leaves_no_folder(rays_folder, monkeypatch):
    ray = pytest.importorskip("ray")
    made = []

    def init(**options):
        made.append(options["_temp_dir"])
        assert os.path.isdir(options["_temp_dir"])
        raise OSError("no")

    monkeypatch.setattr(ray, "init", init)
    sentence = r"^no Ray cluster could be started here: no$"
    with pytest.raises(InputError, match=sentence), worker_pool(SearchSettings(executor="ray")):
        pass
    assert os.path.dirname(made[0]) == str(rays_folder)
    assert not os.path.exists(made[0])
