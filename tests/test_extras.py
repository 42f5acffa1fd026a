"""Losses work where only torch and NumPy are installed, and other parts say what they need."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import evomal
from evomal.errors import InputError
from evomal.extras import MissingLibraryError, extras, missing_library, optional_library
from tests.bare_sites import USE_OF_LOSSES, linked_site
from tests.cli.test_app import run  # noqa: F401  (a fixture)

ROOT = Path(evomal.__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = linked_site(tmp_path_factory.mktemp("site"))
    (folder / "evomal").symlink_to(ROOT / "evomal")
    return folder


@pytest.fixture
def bare(site, tmp_path):
    """Runs code where nothing but those packages can be imported, in an empty folder."""

    def done(code, *options):
        begin = f"import sys; sys.path.insert(0, {str(site)!r})\n"
        command = [sys.executable, "-I", "-S", "-B", "-W", "error", *options, "-c", begin + code]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    return done


def test_nothing_slow_is_imported_with_the_losses():
    code = "import torch, sys; before = {*sys.modules}; import evomal.losses; print(*({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    packages = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"evomal"} == packages - set(sys.stdlib_module_names) - {
        name for name in packages if name.startswith(("numpy", "_cython", "cython", "_sysconfigdata"))
    }


WITHOUT_POSIX = """
import os, signal, sys, warnings
for name in ("fcntl", "resource", "termios", "pwd", "grp", "tty", "pty", "syslog"):
    sys.modules[name] = None
import torch
try:
    import platformdirs  # chooses its part by the name of the platform, which is still this one
except ModuleNotFoundError:
    pass
for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "getuid", "geteuid", "fork", "register_at_fork", "fchmod",
             "sched_getaffinity", "getpgid", "killpg", "setsid", "mkfifo"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGUSR1", "SIGUSR2"):
    delattr(signal, name)
open_file = os.open
def open_no_folder(path, *arguments, **options):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return open_file(path, *arguments, **options)
os.open = open_no_folder
# Files are not in UTF-8 there unless it is said.
warnings.filterwarnings("error", category=EncodingWarning, module="evomal")
"""
TRAINING = """
import numpy as np
x = np.random.default_rng(0).normal(size=(60, 3))
task = evomal.Task.from_arrays(x, x.sum(1) > 0, model=lambda: torch.nn.Linear(3, 2), kind="classification")
for task in (task, evomal.load_task("diabetes", model="mlp:hidden=8")):
    evomal.train(task, loss if task.kind == "classification" else regression, steps=20, device="cpu")
"""
ENCODINGS_MATTER = ("-X", "warn_default_encoding", "-W", "ignore::EncodingWarning")


def test_losses_need_torch_and_numpy_only_and_no_module_of_posix(bare):
    libraries = "{'pydantic', 'numba', 'rich', 'sympy'} & sys.modules.keys()"
    done = bare(f"{WITHOUT_POSIX}{USE_OF_LOSSES}print(seconds); print({libraries})", *ENCODINGS_MATTER)
    assert done.returncode == 0, done.stderr
    seconds, modules = done.stdout.splitlines()
    assert modules == "{'sympy'}"  # for the formula
    assert float(seconds) < 1  # of the processor, beyond torch; it takes a tenth of one


def test_kernels_and_trainings_need_no_module_of_posix(tmp_path):
    code = WITHOUT_POSIX + USE_OF_LOSSES + "\nassert 'evomal.losses.kernels_cpu' in sys.modules" + TRAINING
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"
    command = [sys.executable, *ENCODINGS_MATTER, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_source_tree_that_was_never_installed_has_losses_and_a_version(tmp_path):
    (tmp_path / "evomal").symlink_to(ROOT / "evomal")
    (linked := tmp_path / "site").mkdir()
    for entry in linked_site(linked).glob("evomal-*.dist-info"):
        entry.unlink()
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(linked)!r}]\nimport evomal.extras\n"
    code += "evomal.losses.FocalLoss(); print(evomal.__version__, evomal.extras.extras())\nimport pydantic"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.stdout == f"{evomal.__version__} {{}}\n"
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'pydantic'\n")  # nothing else lies around


MISSING = """
import importlib, sys, types
import evomal
for name in evomal.__all__:
    try:
        exec(f"from evomal import {name}")
    except ImportError as error:
        assert isinstance(error, evomal.InputError)
        print(error)
for name in ("sklearn", "loggers", "lightning"):
    try:
        importlib.import_module(f"evomal.integrations.{name}")
    except ImportError as error:
        assert isinstance(error, evomal.InputError)
        print(error)
sys.modules["lightning.pytorch"] = types.SimpleNamespace(Callback=object)
from evomal.integrations.lightning import LossCallback
LossCallback(evomal.losses.FocalLoss())  # which needs nothing else
sys.argv = ["evomal", "losses"]
from evomal.__main__ import main
main()
"""


def test_names_integrations_and_the_command_say_what_they_need(bare):
    """One after the other in one process, since torch takes seconds to import."""
    done = bare(MISSING)
    assert done.returncode == 2, done.stderr
    said = done.stdout.splitlines()
    names, (sklearn, loggers, lightning) = said[:-3], said[-3:]
    needs = [
        re.fullmatch(
            r"evomal\.(?:tasks\.)?(\w+) needs [\w-]+, which is not installed: pip install 'evomal\[search\]'", name
        )[1]
        for name in names
    ]
    assert {"search", "compare", "SearchSettings", "headroom"} <= {*needs}
    assert not {"Expression", "ExpressionLoss", "losses", "load_loss", "save_loss", "export", "InputError"} & {*needs}
    needed = "which is not installed: pip install"
    assert sklearn == f"evomal.integrations.sklearn needs scikit-learn, {needed} 'evomal[search]'"
    assert re.fullmatch(rf"evomal.integrations.loggers needs [\w-]+, {needed} 'evomal\[search\]'", loggers)
    assert lightning == f"evomal.integrations.lightning needs lightning, {needed} lightning"
    assert re.fullmatch(
        r"evomal: the command evomal needs [\w-]+, which is not installed: pip install 'evomal\[search\]'\n",
        done.stderr,
    )


@pytest.fixture
def without_matplotlib(monkeypatch):
    for name in ("matplotlib", "matplotlib.style", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)


def test_a_command_says_what_it_needs(run, tmp_path, without_matplotlib):  # noqa: F811
    evomal.save_loss(evomal.losses.FocalLoss(), tmp_path / "loss.json")
    sentence = "evomal: drawing needs matplotlib, which is not installed: pip install 'evomal[report]'\n"
    assert run("card", tmp_path / "loss.json", "--out", tmp_path / "card") == (2, "", sentence)


def test_drawing_says_what_it_needs(without_matplotlib):
    from evomal.figures.style import new_figure

    with pytest.raises(MissingLibraryError, match=re.escape("pip install 'evomal[report]'")):
        new_figure()


def test_a_module_of_another_platform_is_named():
    error = missing_library("evomal.search", ModuleNotFoundError("No module named 'fcntl'", name="fcntl"))
    assert str(error) == "evomal.search needs Python's module fcntl, which this platform does not have"


def test_a_module_that_no_extra_has_is_a_defect():
    error = ModuleNotFoundError("No module named 'evomal.serch'", name="evomal.serch")
    assert missing_library("evomal.search", error) is error


def test_a_distribution_may_have_another_name_than_its_module():
    error = missing_library("a split", ModuleNotFoundError("No module named 'sklearn'", name="sklearn.model_selection"))
    assert str(error) == "a split needs scikit-learn, which is not installed: pip install 'evomal[search]'"
    assert isinstance(error, InputError)
    assert isinstance(error, ImportError)


def test_an_optional_library():
    assert optional_library("json", "reading", "search") is json
    sentence = "export to onnx needs onyx, which is not installed: pip install 'evomal[onnx]'"
    with pytest.raises(MissingLibraryError, match=re.escape(sentence)):
        optional_library("onyx", "export to onnx", "'evomal[onnx]'")


def test_the_extras_are_those_of_the_project():
    assert "pydantic" in extras()["search"]
    assert "matplotlib" in extras()["report"]
    assert "evomal" not in {name for libraries in extras().values() for name in libraries}
