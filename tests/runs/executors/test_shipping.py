"""What is sent to workers: a user's own code goes along, and what cannot go is named."""

import contextlib
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

from evomal.errors import InputError
from evomal.runs.executors.shipping import folders_of_users_code, packing, unpacked
from evomal.tasks.loading import task_from_file
from tests.engine.populations import regression
from tests.runs.executors.clusters import USERS_TASK

ray = pytest.importorskip("ray")

LOCK = threading.Lock()


def packed(value, name):
    with packing() as pack:
        return pack(value, name)


@pytest.fixture
def users_file(tmp_path, monkeypatch):
    """A task in a file of its own that imports another beside it; both names are forgotten after."""
    (tmp_path / "helper_of_shipping.py").write_text("WIDTH = 2\n")
    (tmp_path / "task_of_shipping.py").write_text(USERS_TASK.replace("beside", "helper_of_shipping"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "task_of_shipping.py"
    for name in ("helper_of_shipping", "task_of_shipping"):
        sys.modules.pop(name, None)


def test_a_task_of_a_users_file_is_whole_where_the_file_is_not(users_file, tmp_path):
    content = tmp_path / "task.bin"
    content.write_bytes(packed(task_from_file(f"{users_file}:make"), "task"))
    code = (
        "import sys; from evomal.runs.executors.shipping import unpacked;"
        "task = unpacked(open(sys.argv[1], 'rb').read());"
        "print(task.model(), len(task.train), 'task_of_shipping' in sys.modules)"
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


def test_rays_own_pickling_is_as_it_was(users_file):
    before = ray.cloudpickle.list_registry_pickle_by_value()
    packed(task_from_file(f"{users_file}:make"), "task")
    assert ray.cloudpickle.list_registry_pickle_by_value() == before


def test_who_is_done_first_takes_nothing_from_who_still_packs(users_file):
    before = ray.cloudpickle.list_registry_pickle_by_value()
    task_from_file(f"{users_file}:make")
    with contextlib.ExitStack() as longer:
        with packing():
            longer.enter_context(packing())  # as by a search in another thread
        assert "task_of_shipping" in ray.cloudpickle.list_registry_pickle_by_value()
    assert ray.cloudpickle.list_registry_pickle_by_value() == before


def test_values_come_back_as_they_were():
    task = unpacked(packed(regression(), "task"))
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
        packed(regression(model), "task")
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
        packed(regression(model), "task")
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
