"""CPU kernels are cached where possible, and compile whatever has become of the cache."""

import os
import warnings

import numba
import pytest

from evomal import compiled
from evomal.compiled import inner, kernel


def add_one(x):
    return x + 1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the cache, in a process that has not warned of anything yet."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "_said", set())
    return tmp_path


def _used() -> tuple[int, list[str]]:
    """How often a new kernel, as of another process, was found in the cache, and what was said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = kernel()(add_one)
        assert made(1) == 2
        assert made(1.5) == 2.5
    compiled._said.clear()
    return sum(made.stats.cache_hits.values()), [str(warning.message) for warning in said]


def _damage(path, damage: str) -> None:
    content = bytearray(path.read_bytes())
    if damage == "a folder":
        path.unlink()
        path.mkdir()
    elif damage == "flipped":
        content[len(content) // 2] ^= 0x55
        path.write_bytes(content)
    else:
        path.write_bytes({"empty": b"", "half": content[: len(content) // 2], "zeros": bytes(len(content))}[damage])


def test_a_kernel_releases_the_lock():
    assert kernel()(add_one).targetoptions["nogil"]


def test_a_kernel_is_compiled_once_for_all_processes(folder):
    assert _used() == (0, [])
    assert _used() == (2, [])


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["empty", "half", "zeros"])
def test_a_damaged_cache_is_rebuilt_with_one_warning(folder, ending, damage):
    _used()
    for path in folder.rglob(f"*.{ending}"):
        _damage(path, damage)
    hits, (sentence,) = _used()
    assert hits < 2
    assert sentence.startswith(f"a CPU kernel is compiled again, since the one stored in {folder}")
    assert _used() == (2, [])


def test_a_flipped_byte_of_machine_code_is_noticed(folder):
    _used()
    for path in folder.rglob("*.nbc"):
        _damage(path, "flipped")
    _, (sentence,) = _used()
    assert "does not match its checksum" in sentence


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_what_cannot_be_replaced_is_done_without(folder, ending):
    _used()
    for path in folder.rglob(f"*.{ending}"):
        _damage(path, "a folder")
    _, said = _used()
    assert any("is compiled anew in each process" in sentence for sentence in said)


def test_the_code_of_another_signature_is_not_run(folder):
    _used()
    one, other = folder.rglob("*.nbc")
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert _used() == (0, [])
    assert _used() == (2, [])


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_what_is_no_file_is_not_read(folder, ending):
    _used()
    for path in folder.rglob(f"*.{ending}"):
        path.unlink()
        os.mkfifo(path)
    hits, (sentence,) = _used()
    assert hits == 0
    assert sentence.endswith("is not a regular file")
    assert _used() == (2, [])


def test_a_full_disk_is_said_once(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compiled._CheckedFile, "_save_data", full)
    hits, (sentence,) = _used()
    assert hits == 0
    assert sentence.endswith("No space left on device")


def test_without_a_place_for_the_cache_it_compiles_anyway(folder, monkeypatch):
    def nowhere(*_):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(compiled._FunctionCache, "__init__", nowhere)
    _, (sentence,) = _used()
    assert "is compiled anew in each process, since it cannot be stored: cannot cache" in sentence


def test_other_functions_to_compile_with_make_the_cache_stale(folder, monkeypatch):
    _used()
    changed = folder / "compiled.py"
    changed.write_text("# another version")
    monkeypatch.setattr(compiled, "__file__", str(changed))
    assert _used() == (0, [])


def test_the_files_beside_a_kernel_are_part_of_its_version(tmp_path):
    """A kernel is compiled with functions of other files, whose changes numba does not see."""
    before = compiled._sources(tmp_path)
    (tmp_path / "numba_helpers.py").write_text("one = 1")
    assert compiled._sources(tmp_path) == before + b"one = 1"


def test_the_cache_of_another_user_is_not_read(folder, monkeypatch):
    path = folder / "entry.nbi"
    path.touch()
    compiled._require_own(str(path))
    if os.getuid() == 0:
        os.chown(path, 12345, -1)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    monkeypatch.setattr(compiled, "__file__", "/")  # which belongs to the super-user
    with pytest.raises(PermissionError, match=r"entry\.nbi belongs to another user"):
        compiled._require_own(str(path))


def test_an_inner_kernel_is_called_by_kernels_and_has_no_wrappers():
    added = inner()(add_one)
    twice = kernel()(lambda x: added(added(x)))
    assert twice(1.0) == 3.0
    assert added.targetoptions["no_cpython_wrapper"]
    assert added.targetoptions["no_cfunc_wrapper"]
