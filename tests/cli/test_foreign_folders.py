"""What a stranger's folder holds instead of files: links are not followed, pipes are not waited for."""

import os
import shutil
import signal

import pytest

from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.cli.test_compare import SHORT
from tests.report.cards import saved_loss
from tests.report.reports import written_run

PRECIOUS = "kept"


@pytest.fixture(autouse=True)
def in_time():
    """Fails a test that waits for a pipe."""

    def late(*_):
        raise AssertionError("it waited")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def stranger(tmp_path):
    """A run folder, with a file outside of it that nothing may change or show."""
    (tmp_path / "precious").write_text(PRECIOUS)
    yield written_run(tmp_path / "run", workplace={"executor": "local"})
    assert (tmp_path / "precious").read_text() == PRECIOUS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "run"]


def put(kind, path):
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.symlink_to(path.parent.parent / "precious")


KINDS = ["pipe", "device", "link"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["run.sqlite", "run.sqlite-journal", "run.sqlite-wal", "run.sqlite-shm"])
def test_a_record_that_is_no_file_is_one_sentence(run, stranger, name, kind):  # noqa: F811
    put(kind, stranger / name)
    sentence = f"{stranger / name}: must be a regular file but is a {'pipe' if kind == 'pipe' else 'link'}"
    for command in (("report",), ("resume",), ("analyse", "curves")):
        assert run(*command, stranger) == (2, "", f"evomal: {sentence}\n")
    code, out, err = run("runs", stranger)
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == f"    {sentence}"


@pytest.mark.parametrize("kind", KINDS)
def test_other_files_that_are_none_hide_nothing(run, stranger, kind):  # noqa: F811
    for name in (".run.lock", "best.json", "comparison.json", "comparison.md", "trainings.jsonl"):
        put(kind, stranger / name)
    code, out, err = run("runs", stranger)
    assert (code, err) == (0, "")
    assert out.startswith(f"{stranger}: complete, 2 generations")
    code, _, err = run("report", stranger)
    assert (code, err) == (0, "")
    page = (stranger / "report.html").read_text()
    assert PRECIOUS not in page
    assert "comparison.json: must be a regular file but is a" in page
    assert page.count("must be a regular file but is a") == page.count("comparison.json: must be a regular file")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["comparison.md", "transfer.md"])
def test_a_card_includes_no_link_and_waits_for_no_pipe(run, stranger, name, kind):  # noqa: F811
    path = saved_loss(stranger)
    put(kind, stranger / name)
    code, out, err = run("card", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"evomal: {stranger / name}: must be a regular file but is a ")


@pytest.mark.parametrize("name", ["report.html", "best.json"])
def test_a_link_to_a_file_elsewhere_is_replaced(run, stranger, name):  # noqa: F811
    put("link", stranger / name)
    if name == "best.json":
        path = saved_loss(stranger)
        code, _, err = run("export", path, "--to", "python", "--out", stranger / name)
    else:
        code, _, err = run("report", stranger)
    assert (code, err) == (0, "")
    assert not (stranger / name).is_symlink()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["trainings.jsonl", ".run.lock"])
def test_a_comparison_does_not_write_through_links(run, stranger, name, kind):  # noqa: F811
    put(kind, stranger / name)
    code, out, err = run("compare", "diabetes", *SHORT, "--losses", "mae", "--seeds", "1", "--out", stranger)
    assert (code, out) == (2, "")
    assert f"{stranger / name}: must be a regular file but is a " in err


@pytest.mark.parametrize("name", ["searches", "searches/evomal-0"])
def test_a_comparison_searches_in_no_folder_elsewhere(run, stranger, name):  # noqa: F811
    shutil.rmtree(stranger)
    (stranger / name).parent.mkdir(parents=True)
    (stranger / name).symlink_to(stranger.parent)
    code, out, err = run("compare", "diabetes", *SHORT, "--methods", "evomal", "--seeds", "1", "--out", stranger)
    assert (code, out) == (2, "")
    assert f"{stranger / name}: is a link, and nothing is written through it" in err


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_settings_file_that_is_none_is_one_sentence(run, stranger, kind):  # noqa: F811
    put(kind, stranger / "mine.toml")
    code, out, err = run("search", "diabetes", "--config", stranger / "mine.toml", "--dry-run")
    assert (code, out) == (2, "")
    assert f"{stranger / 'mine.toml'}: must be a regular file but is a {kind}" in err


def test_a_person_may_name_a_link(run, stranger):  # noqa: F811
    path = saved_loss(stranger)
    (stranger / "link.json").symlink_to(path)
    code, out, _ = run("card", stranger / "link.json")
    assert code == 0
    assert out.startswith("link: ")
