"""The folder of a cluster that is started here: whose it is, how long its path may be, and that nothing is left."""

import os
import tempfile

import pytest

from evomal.errors import InputError
from evomal.runs.executors import cluster_folder as module
from evomal.runs.executors.cluster_folder import LONGEST_PLACE, cluster_folder


def test_each_has_a_new_one_which_is_removed_with_all_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_PLACE", 1000)
    place = tmp_path / "new"
    monkeypatch.setenv("RAY_TMPDIR", str(place))
    with cluster_folder() as first, cluster_folder() as second:
        assert (first, second) == (place / "ray-0", place / "ray-1")
        assert first.stat().st_mode & 0o777 == 0o700
        (first / "session" / "logs").mkdir(parents=True)
        (first / "session" / "logs" / "log").write_text("a line")
    assert list(place.iterdir()) == []


def test_it_lies_in_the_temporary_folder_unless_ray_has_one(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_PLACE", 1000)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(module, "_IS_MAC", False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with cluster_folder() as folder:
        assert folder == tmp_path / "ray-0"


def test_a_file_that_is_written_while_it_is_removed_does_not_keep_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_PLACE", 1000)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    removed, calls = module.shutil.rmtree, []

    def refusing_once(folder, ignore_errors):
        calls.append(folder)
        if len(calls) > 1:
            removed(folder, ignore_errors=ignore_errors)

    monkeypatch.setattr(module.shutil, "rmtree", refusing_once)
    with cluster_folder():
        pass
    assert len(calls) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("longer", [0, 1, 60])
def test_a_path_that_leaves_no_room_for_a_socket_is_one_sentence(monkeypatch, longer):
    place = "/" + "é" * ((LONGEST_PLACE - 1) // 2) + "p" * ((LONGEST_PLACE - 1) % 2 + longer)  # counted in bytes
    monkeypatch.setenv("RAY_TMPDIR", place)
    monkeypatch.setattr(module.Path, "mkdir", lambda *_, **__: None)
    if not longer:
        with cluster_folder() as folder:
            assert folder == module.Path(place) / "ray-0"
        return
    with pytest.raises(InputError) as caught, cluster_folder():
        pass
    assert str(caught.value) == (
        f"no Ray cluster could be started here: the path of its temporary folder must have at most {LONGEST_PLACE} "
        f"bytes but {place} has {LONGEST_PLACE + longer}: set RAY_TMPDIR to a shorter one"
    )


def test_a_place_that_is_no_folder_is_one_sentence(rays_folder, monkeypatch):
    (rays_folder / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(rays_folder / "file"))
    with pytest.raises(InputError) as caught, cluster_folder():
        pass
    assert str(caught.value) == f"no Ray cluster could be started here: {rays_folder / 'file'}: File exists"


def test_a_cluster_that_cannot_be_started_leaves_no_folder(rays_folder, monkeypatch):
    ray = pytest.importorskip("ray")
    from evomal.runs.executors import cluster
    from evomal.settings import SearchSettings

    made = []

    def init(**options):
        made.append(options["_temp_dir"])
        assert os.path.isdir(options["_temp_dir"])
        raise OSError("no")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(InputError, match=r"^no Ray cluster could be started here: no$"):
        cluster._CONNECTION.join(SearchSettings(executor="ray"), [])
    assert os.path.dirname(made[0]) == str(rays_folder)
    assert not os.path.exists(made[0])
