"""What is sent to workers: the user's own code is included, and what cannot be pickled is named."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import cloudpickle
import pytest
import torch
from torch import nn

from evomal.errors import InputError
from evomal.runs.executors.pickling import _users_modules, folders_of_users_code, pickled, unpickle
from evomal.tasks.loading import task_from_file
from tests.engine.populations import regression
from tests.runs.executors.clusters import USERS_TASK

LOCK = threading.Lock()


@pytest.fixture
def users_file(tmp_path, monkeypatch):
    """A task in a file of its own that imports another beside it; both names are forgotten after."""
    (tmp_path / "helper_of_pickling.py").write_text("WIDTH = 2\n")
    (tmp_path / "task_of_pickling.py").write_text(USERS_TASK.replace("beside", "helper_of_pickling"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "task_of_pickling.py"
    for name in ("helper_of_pickling", "task_of_pickling"):
        sys.modules.pop(name, None)


def test_a_task_of_a_users_file_is_whole_where_the_file_is_not(users_file, tmp_path):
    content = tmp_path / "task.bin"
    content.write_bytes(pickled(task_from_file(f"{users_file}:make"), "task"))
    code = (
        "import sys; from evomal.runs.executors.pickling import unpickle;"
        "task = unpickle(open(sys.argv[1], 'rb').read());"
        "print(task.model(), len(task.train), 'task_of_pickling' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(content)], cwd="/", capture_output=True, text=True, check=True, timeout=100
    )
    shown = "Net(\n  (layer): Linear(in_features=3, out_features=2, bias=True)\n) 54 False\n"
    assert found.stdout == shown


def test_folders_of_users_code_are_known_and_those_of_installed_code_are_not(users_file):
    task_from_file(f"{users_file}:make")
    folders = folders_of_users_code()
    assert str(users_file.parent.resolve()) in folders
    assert not any("site-packages" in folder or folder.endswith("evomal") for folder in folders)


def test_libraries_in_a_folder_of_their_own_are_installed_too(users_file, tmp_path):
    """As by `pip install --target`: by value, cloudpickle would try to send itself."""
    libraries = tmp_path / "libraries"
    shutil.copytree(Path(cloudpickle.__file__).parent, libraries / "cloudpickle")
    metadata = Path(str(importlib.metadata.distribution("cloudpickle").locate_file("")))
    (known,) = metadata.glob("cloudpickle-*.dist-info")
    shutil.copytree(known, libraries / known.name)
    (libraries / "mine_beside_libraries.py").write_text("import torch\n")
    code = (
        "import sys, cloudpickle; from evomal.runs.executors.pickling import folders_of_users_code, pickled;"
        "from evomal.tasks.loading import task_from_file;"
        "assert cloudpickle.__file__.startswith(sys.argv[2]), cloudpickle.__file__;"
        "pickled(task_from_file(sys.argv[1] + ':make'), 'task');"
        "before = folders_of_users_code(); import mine_beside_libraries;"
        "print([sys.argv[2] in folders for folders in (before, folders_of_users_code())])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(users_file), str(libraries)], cwd="/", capture_output=True, text=True,
        check=False, timeout=100, env={**os.environ, "PYTHONPATH": str(libraries)},
    )  # fmt: skip
    assert found.stdout == "[False, True]\n", found.stderr


def test_modules_without_a_file_are_not_the_user_s():
    """Such as torch.ops, whose file is `_ops.py` in no folder."""
    assert "torch.ops" not in [module.__name__ for module, _ in _users_modules(tuple(map(id, sys.modules.values())))]


def test_pickling_by_others_is_as_it_was(users_file):
    before = cloudpickle.list_registry_pickle_by_value()
    pickled(task_from_file(f"{users_file}:make"), "task")
    assert cloudpickle.list_registry_pickle_by_value() == before


def test_modules_that_the_user_has_registered_stay_registered(users_file):
    task = task_from_file(f"{users_file}:make")
    module = sys.modules["task_of_pickling"]
    cloudpickle.register_pickle_by_value(module)
    try:
        pickled(task, "task")
        assert "task_of_pickling" in cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_values_come_back_as_they_were():
    task = unpickle(pickled(regression(), "task"))
    assert torch.equal(task.train.inputs, regression().train.inputs)
    assert task.name == "own"


class Factory:
    def __init__(self):
        self.rows = (row for row in range(3))

    def __call__(self):
        return nn.Linear(4, 1)


def with_a_global():
    return LOCK and nn.Linear(4, 1)


def with_a_variable():
    waiting = threading.Event()
    return lambda: waiting and nn.Linear(4, 1)


class Slots:
    __slots__ = ("handle",)

    def __init__(self):
        self.handle = LOCK

    def __call__(self):
        return nn.Linear(4, 1)


class Default:
    def __call__(self, handle=LOCK):
        return nn.Linear(4, 1)


def with_a_set():
    several = {LOCK}
    return lambda: several and nn.Linear(4, 1)


def with_a_keyword(*, handle=LOCK):
    return nn.Linear(4, 1)


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (Slots(), "handle"),
        (Default(), "Default.__call__.handle"),
        (lambda handle=LOCK: nn.Linear(4, 1), "handle"),
        (with_a_keyword, "handle"),
        (with_a_set(), "several.0"),
    ],
)
def test_what_cannot_be_sent_is_named_wherever_it_hides(model, path):
    with pytest.raises(InputError) as caught:
        pickled(regression(model), "task")
    assert str(caught.value).startswith(f"task.model.{path} is a lock, which cannot be sent to a worker: ")


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (with_a_global, "task.model.LOCK is a lock, which cannot be sent to a worker: cannot pickle '_thread.lock'"),
        (Factory(), "task.model.rows is a generator, which cannot be sent to a worker: cannot pickle 'generator'"),
        (with_a_variable(), "task.model.waiting._cond._lock is a lock, which cannot be sent to a worker: cannot"),
    ],
)
def test_what_cannot_be_sent_is_named_in_one_sentence(model, sentence):
    with pytest.raises(InputError) as caught:
        pickled(regression(model), "task")
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
