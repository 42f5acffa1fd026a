"""pyproject.toml, constraints.txt and the Makefile agree with the tree."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from evomal import __version__
from tests.bare_sites import USE_OF_LOSSES, linked_site

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAMES = {
    "sklearn": "scikit-learn",
    "markdown_it": "markdown-it-py",
    "pydantic_core": "pydantic-core",
    "xdist": "pytest-xdist",
}
LOCAL = {"evomal", "tests", "examples", *(path.stem for path in ROOT.glob("*/*.py"))}
NOT_IMPORTED = {"hatchling", "httpx2", "mypy", "onnxscript", "playwright", "ruff"}  # commands, plugins, a browser
WITH_TORCH = "triton"  # comes with the builds of torch that can use it


def third_party(folder: str) -> set[str]:
    """The distributions that the modules of a folder import, wherever in a module the import stands."""
    found: set[str] = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
    modules = {name.partition(".")[0] for name in found} - LOCAL - set(sys.stdlib_module_names)
    return {NAMES.get(module, module) for module in modules}


def declared(*extras: str) -> dict[str, Requirement]:
    """What the package needs, with the extras and those that these refer to."""
    found = {wanted.name: wanted for wanted in map(Requirement, PROJECT["project"]["dependencies"])}
    for extra in extras:
        for wanted in map(Requirement, PROJECT["project"]["optional-dependencies"][extra]):
            found |= declared(*sorted(wanted.extras)) if wanted.name == "evomal" else {wanted.name: wanted}
    return found


def test_the_package_declares_what_it_imports():
    assert third_party("evomal") - {WITH_TORCH, *declared("all", "integrations")} == set()


def test_nothing_is_declared_that_the_package_does_not_import():
    assert set(declared("search", "report", "kernels")) - third_party("evomal") == set()


def test_the_extras_hold_what_the_tests_import_and_nothing_else():
    imported = set().union(*map(third_party, ("evomal", "tests", "examples", "benchmarks")))
    assert imported - {*declared("dev", "integrations")} == set()
    assert {*declared("dev")} - imported == NOT_IMPORTED


def test_the_pinned_versions_are_within_the_declared_ranges():
    lines = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    wanted = declared("dev")
    assert set(wanted) - set(pins) == {WITH_TORCH}
    assert [name for name, pin in pins.items() if name in wanted and pin not in wanted[name].specifier] == []


def test_losses_need_torch_and_numpy_only():
    assert set(declared()) == {"torch", "numpy", "sympy"}  # torch itself needs SymPy


# ---- the source distribution ----


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("a clone is needed")
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()} - {".gitignore"}


def test_the_include_list_names_everything_that_is_tracked():
    included = {*PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"], "pyproject.toml"}
    assert {name.partition("/")[0] for name in tracked()} == included


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_the_source_distribution_is_complete(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        held = {member.name.partition("/")[2] for member in file if member.isfile()}
    assert tracked() - held == set()


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_the_version_of_a_build_is_that_of_the_code():
    command = [sys.executable, "-m", "hatchling", "version"]
    assert subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip() == __version__


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_wheels_of_the_tree_and_of_the_source_distribution_work_in_an_empty_environment(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "--directory", tmp_path / "dist"]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (archive,) = (tmp_path / "dist").glob("*.whl"), (tmp_path / "dist").glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "wheel", *offline, "--wheel-dir", tmp_path / "again", archive], check=True)
    (again,) = (tmp_path / "again").glob("*.whl")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert first.namelist() == second.namelist()
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", again], check=True)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (tmp_path / "site").mkdir()
    (packages / "torch.pth").write_text(f"{linked_site(tmp_path / 'site')}\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    code = f"{USE_OF_LOSSES}\nassert evomal.__file__.startswith(sys.prefix), evomal.__file__"
    subprocess.run([python, "-c", code], cwd=tmp_path, env=environment, check=True)
    done = subprocess.run(
        [tmp_path / "venv" / "bin" / "evomal", "losses"], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("evomal: the command evomal needs ")


# ---- make test-all ----


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("installed", "sentence"),
    [
        (["3.12"], "Python versions tested: 3.12; not installed: 3.11 3.13"),
        ([], "Python versions tested: none; not installed: 3.11 3.12 3.13"),
    ],
)
def test_the_versions_that_are_missing_are_named(tmp_path, installed, sentence):
    (tmp_path / "python3.13").write_text("#!/bin/sh\nexit 127\n")  # a shim of a version that is not active
    (tmp_path / "python3.13").chmod(0o755)
    for version in installed:
        (tmp_path / f"python{version}").symlink_to(sys.executable)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        [shutil.which("make"), "--dry-run", "--no-print-directory", "test-all"],
        cwd=ROOT, env={**environment, "PATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode == 0) is bool(installed)
    assert sentence in done.stdout
    assert re.findall(r"(\S+)/bin/python -m pytest", done.stdout) == [f".venv-{version}" for version in installed]


# ---- the image and the workflows ----


def test_the_image_is_built_of_files_that_are_there():
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {*copied} == kept
    assert [name for name in copied if not (ROOT / name).exists()] == []
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", "\n".join(lines))
    assert {*extras.split(",")} <= {*PROJECT["project"]["optional-dependencies"]}


def test_the_workflows_make_targets_that_there_are():
    targets = {*re.findall(r"(?m)^([\w-]+)(?:[\w -]*):", (ROOT / "Makefile").read_text())}
    workflows = [path.read_text() for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
    made = {name for text in workflows for name in re.findall(r"run: make ([\w-]+)", text)}
    assert made == {"test", "test-long", "fuzz", "docs", "docs-version"}
    assert made <= targets
    assert all("\npermissions:\n  contents: read\n" in text for text in workflows)
