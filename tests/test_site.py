"""The site: every public name is in the reference, and a broken link stops the build."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import evomal
import evomal.losses

ROOT = Path(__file__).parents[1]
REFERENCE = (ROOT / "docs" / "api.md").read_text().split()
NOT_LISTED = {"__version__", "losses", "metrics", "plot"}  # modules have sections of their own
ELSEWHERE = {"CATALOGUE", "ExpressionLoss", "load_loss", "save_loss"}


def test_every_public_name_is_in_the_reference():
    assert {f"evomal.{name}" for name in {*evomal.__all__} - NOT_LISTED} <= {*REFERENCE}
    assert {f"evomal.losses.{name}" for name in {*evomal.losses.__all__} - ELSEWHERE} <= {*REFERENCE}


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [path.name for path in (ROOT / "docs").glob("*.md") if f": {path.name}\n" not in navigation] == []


# The tools of the site are in the virtual environment that `make docs` and `make test-long` set up.
OWN = ROOT / ".venv-docs" / "bin" / "python"
PYTHON = sys.executable if importlib.util.find_spec("mike") else OWN
with_tools = pytest.mark.skipif(not Path(PYTHON).exists(), reason="MkDocs is not installed: make docs installs it")


@pytest.fixture
def copy(tmp_path):
    """What the site is built of, in a folder of its own."""
    for name in ("docs", "mkdocs.yml", "evomal", "CONTRIBUTING.md", "CHANGELOG.md"):
        copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copied(ROOT / name, tmp_path / name)
    return tmp_path


def run(folder, tool, *words):
    """Runs a tool of that environment there. MkDocs is not quiet: then it would not count warnings."""
    environment = {
        **os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(folder),
        "PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}",  # mike starts mkdocs
        **{f"GIT_{of}_{what}": "somebody" for of in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }  # fmt: skip
    return subprocess.run(
        [Path(PYTHON).with_name(tool), *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def spoil(folder):
    with (folder / "docs" / "concepts.md").open("a") as file:
        file.write("\n[nowhere](nowhere.md)\n")


@pytest.mark.long
@with_tools
def test_the_site_is_built_and_a_broken_link_is_noticed(copy):
    done = run(copy, "mkdocs", "build", "--strict")
    assert done.returncode == 0, done.stderr
    assert "population" in (copy / "site" / "settings" / "index.html").read_text()
    assert "--dry-run" in (copy / "site" / "command-line" / "index.html").read_text()
    assert "<math" in (copy / "site" / "concepts" / "index.html").read_text()
    spoil(copy)
    done = run(copy, "mkdocs", "build", "--strict")
    assert done.returncode == 1
    assert "nowhere.md" in done.stderr


@pytest.mark.long
@with_tools
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_versions_of_the_site_stay_beside_each_other(copy):
    def git(*words):
        return subprocess.run(["git", *words], cwd=copy, check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    git("-c", "user.name=somebody", "-c", "user.email=somebody", "commit", "--quiet", "--allow-empty", "-m", "first")
    for version in (["0.1", "latest"], ["0.2", "latest"]):
        done = run(copy, "mike", "deploy", "--update-aliases", *version)
        assert done.returncode == 0, done.stderr
    listed = json.loads(git("show", "gh-pages:versions.json"))
    assert {entry["version"]: entry["aliases"] for entry in listed} == {"0.1": [], "0.2": ["latest"]}
    assert "Start in five minutes" in git("show", "gh-pages:0.1/index.html")
    assert '"provider": "mike"' in git("show", "gh-pages:0.2/index.html")
    spoil(copy)
    done = run(copy, "mike", "deploy", "0.3")  # as strict as a build
    assert done.returncode == 1
    assert "nowhere.md" in done.stderr
