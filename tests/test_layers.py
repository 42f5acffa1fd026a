"""Imports point one way (docs/architecture.md), and module names do not shadow public functions."""

import ast
import re
from pathlib import Path

import pytest

import evomal

ROOT = Path(evomal.__file__).parent
# What each package may import, besides itself and the leaves: the modules at the top level, settings and zoo.
_LEAVES = ("settings", "zoo")
_ORDER = ("methods", "runs", "verdict", "figures", "paper", "report", "integrations", "campaigns", "server", "cli")
MAY_IMPORT = {
    "leaf": (),
    "expression": (),
    "tasks": (),
    "forest": ("expression",),
    "losses": ("expression", "forest"),
    "engine": ("expression", "forest", "losses", "tasks"),
}
for _place, _package in enumerate(_ORDER):
    MAY_IMPORT[_package] = ("expression", "forest", "losses", "tasks", "engine", *_ORDER[:_place])
MODULES = sorted(ROOT.rglob("*.py"))


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return "leaf" if len(parts) == 1 or parts[0] in _LEAVES else parts[0]


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def imported_packages(path: Path) -> set[str]:
    inside = {name.split(".")[1] for name in imports_of(path) if name.startswith("evomal.")}
    return {name for name in inside if (ROOT / name).is_dir() and name not in _LEAVES}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_left(path):
    package = package_of(path)
    if package == "leaf" and path.stem in ("__init__", "__main__"):
        return
    assert imported_packages(path) <= {*MAY_IMPORT[package], package}


@pytest.mark.parametrize("path", [p for p in MODULES if package_of(p) == "expression"], ids=lambda p: p.name)
def test_expressions_do_without_torch(path):
    assert not any(name.split(".")[0] == "torch" for name in imports_of(path))


def test_the_rule_notices_a_breach(tmp_path, monkeypatch):
    package = tmp_path / "expression"
    package.mkdir()
    (tmp_path / "losses").mkdir()
    breach = package / "breach.py"
    breach.write_text("from evomal.losses.loss import Loss\n")
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    assert imported_packages(breach) == {"losses"}


def test_no_module_bears_the_name_of_a_public_function():
    public = {name for name in evomal.__all__ if callable(getattr(evomal, name))} | {"search", "train", "compare"}
    assert not public & {path.stem for path in MODULES}


def test_every_module_says_what_it_is():
    assert [path for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_only_what_a_process_sends_to_its_workers_is_pickled():
    pickling = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}
    users = {path for path in MODULES if pickling & {name.split(".")[0] for name in imports_of(path)}}
    assert users == {ROOT / "runs" / "executors" / "pickling.py"}
    loading = re.compile(
        r"\b(torch|jit|export|np|joblib)\.load\((?!.*allow_pickle=False)|allow_pickle=True|read_pickle"
    )
    assert [path for path in MODULES if loading.search(path.read_text())] == []


def constants_of(path: Path) -> list[str]:
    """The names that the module assigns at its top level, as often as it does."""
    statements = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign | ast.AnnAssign)]
    targets = [target for node in statements for target in getattr(node, "targets", [getattr(node, "target", None)])]
    names = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    return [name.id for name in names if name.id.strip("_").isupper()]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_constant_is_assigned_twice(path):
    # The second value would silently hold for the first use, too.
    names = constants_of(path)
    assert len(names) == len(set(names)), sorted(names)
