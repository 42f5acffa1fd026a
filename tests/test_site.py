"""The site: every public name is in the reference, and a broken link stops the build."""

import importlib.util
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


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: make docs installs it")
def test_the_site_is_built_and_a_broken_link_is_noticed(tmp_path):
    for name in ("docs", "mkdocs.yml", "evomal", "CONTRIBUTING.md", "CHANGELOG.md"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)

    def build():
        # Not quiet: then MkDocs would not count warnings.
        command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    done = build()
    assert done.returncode == 0, done.stderr
    assert "population" in (tmp_path / "site" / "settings" / "index.html").read_text()
    assert "--dry-run" in (tmp_path / "site" / "command-line" / "index.html").read_text()
    assert "<math" in (tmp_path / "site" / "concepts" / "index.html").read_text()
    with (tmp_path / "docs" / "concepts.md").open("a") as file:
        file.write("\n[nowhere](nowhere.md)\n")
    done = build()
    assert done.returncode == 1
    assert "nowhere.md" in done.stderr
