"""What the commands around a search do when the record, the disk, the folder, a person or a candidate fails them."""

import errno
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch

from evomal.engine import Engine
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.losses import ExpressionLoss, save_loss
from evomal.methods.baseline import RIVALS
from evomal.methods.candidates import State
from evomal.runs import RunStore, run_loop, versions
from evomal.tasks import load_task
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.engine.populations import EXPLOSIVE
from tests.processes import begun
from tests.searches import ROOT, SHORT, beginning, commanded, dump_of, search_arguments

GENERATIONS = SHORT["generations"]
NOTHING_LEFT = "0 generations and 0 candidates of it can still be read and verified"
ALL_LEFT = "4 generations and 24 candidates of it can still be read and verified"
ONE_LOST = "4 generations and 23 candidates of it can still be read and verified"
FOREIGN = "is not the record of an evomal run, or its first bytes are damaged"
# The system's default, also where the tests are run in the background with Ctrl-C ignored.
INTERRUPTIBLE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "evomal", *sys.argv[1:]])
"""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads that wait for each other would take most of the time of such small models."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a complete run."""
    folder = tmp_path_factory.mktemp("whole")
    assert commanded(search_arguments(folder)) == 0
    return folder


@pytest.fixture
def after_a_generation(monkeypatch):
    """Makes something happen once, when the first generation is recorded."""

    def arrange(happening):
        write_chunk = RunStore.write_chunk

        def writing(store, generation, candidates):
            number = write_chunk(store, generation, candidates)
            if generation == 0:
                happening(store.path)
            return number

        monkeypatch.setattr(RunStore, "write_chunk", writing)

    return arrange


def require_the_beginning_of(whole, folder) -> None:
    """Some generations are recorded, but not all, and they are those of the whole run."""
    with RunStore.read(folder) as store:
        generations, trials, dump = len(store.complete_chunks()), len(store.trials()), store.dump()
    assert 1 <= generations < GENERATIONS
    assert trials == len(RIVALS["regression"])
    assert dump == beginning(dump_of(whole), generations, trials)


def require_equal(whole, folder) -> None:
    assert dump_of(folder) == dump_of(whole)
    assert (folder / "best.json").read_bytes() == (whole / "best.json").read_bytes()


def refusal(run, folder, content) -> str:  # noqa: F811
    """How `resume` refuses a damaged record that `runs` lists; neither changes the file."""
    path = folder / "run.sqlite"
    path.write_bytes(content)
    code, out, err = run("resume", folder)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    sentence = line.removeprefix("evomal: ")
    assert run("runs", folder) == (0, f"{folder}: damaged, 0 generations\n    {sentence}\n", "")
    assert path.read_bytes() == content
    assert sentence.startswith(f"{path}: ")
    return sentence.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("share", "sentence"),
    [
        (0.0, r"is empty, but the record of an evomal run was expected"),
        (0.001, rf"is damaged \(.+\); {NOTHING_LEFT}"),
        (0.3, rf"is damaged \(.+\); {NOTHING_LEFT}"),
        (0.7, rf"is damaged \(.+\); {NOTHING_LEFT}"),
        (0.999, r"is damaged \(.+\); 4 generations and 2\d candidates of it can still be read and verified"),
    ],
)
def test_a_truncated_record_is_refused_with_what_is_left(run, whole, tmp_path, share, sentence):  # noqa: F811
    content = (whole / "run.sqlite").read_bytes()
    assert re.fullmatch(sentence, refusal(run, tmp_path, content[: int(share * len(content))]))


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (0, FOREIGN),
        (16, FOREIGN),  # the size of a page
        (28, rf"is damaged \(.+\); {NOTHING_LEFT}"),  # the number of pages
        (63, r"is of version 5 but this evomal reads versions 1 to 4: it is damaged or comes from a newer evomal"),
        (68, FOREIGN),  # the mark of evomal
        (4096, rf"is damaged \(.+\); {ALL_LEFT}"),  # the kind of the second page
        (b'"meta_lr"', rf"is damaged \(a row of its table settings does not match its checksum\); {ALL_LEFT}"),
        (b"and evaluated", rf"is damaged \(a row of its table trials does not match its checksum\); {ALL_LEFT}"),
        (b"evaluated[", rf"is damaged \(a row of its table candidates does not match its checksum\); {ONE_LOST}"),
        (b"are done", rf"is damaged \(a row of its table ending does not match its checksum\); {ALL_LEFT}"),
    ],
)
def test_a_flipped_bit_is_refused_with_what_is_left(run, whole, tmp_path, place, sentence):  # noqa: F811
    content = bytearray((whole / "run.sqlite").read_bytes())
    content[place if isinstance(place, int) else content.rindex(place)] ^= 1
    assert re.fullmatch(sentence, refusal(run, tmp_path, bytes(content)))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rows_of_another_version_are_damage(run, whole, tmp_path, version):  # noqa: F811
    content = bytearray((whole / "run.sqlite").read_bytes())
    content[63] = version
    assert re.fullmatch(rf"is damaged \(.+\); {NOTHING_LEFT}", refusal(run, tmp_path, bytes(content)))


def test_a_full_disk_stops_the_search_and_keeps_what_is_recorded(run, whole, tmp_path, after_a_generation):  # noqa: F811
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    after_a_generation(lambda path: resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, limits[1])))
    try:
        code, out, err = run(*search_arguments(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (code, out) == (1, "")
    said = f"evomal: {tmp_path / 'run.sqlite'}: (the disk is full|reading or writing failed); what was recorded before"
    assert re.fullmatch(f"{said} is kept", err.splitlines()[-1])
    require_the_beginning_of(whole, tmp_path)
    assert run("resume", tmp_path)[0] == 0
    require_equal(whole, tmp_path)


def without_room_for_best(run, folder, monkeypatch):  # noqa: F811
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)  # SQLite has its own
        return run(*search_arguments(folder))


def test_a_disk_too_full_for_the_best_loss_keeps_what_is_recorded(run, whole, tmp_path, monkeypatch):  # noqa: F811
    _, out, err = without_room_for_best(run, tmp_path, monkeypatch)
    assert out == ""
    said = f"evomal: {tmp_path / 'best.json'}: cannot be written: No space left on device"
    assert err.splitlines()[1:] == [said], "after the line of the rivals"
    require_the_beginning_of(whole, tmp_path)
    assert run("resume", tmp_path)[0] == 0
    require_equal(whole, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".run.lock", "best.json", "run.sqlite"]


def test_a_disk_too_full_for_the_best_loss_is_no_bad_input(run, tmp_path, monkeypatch):  # noqa: F811
    assert without_room_for_best(run, tmp_path, monkeypatch)[0] == 1


def test_a_folder_that_cannot_be_written_is_one_sentence(run, whole, tmp_path, monkeypatch):  # noqa: F811
    begun, new = tmp_path / "begun", tmp_path / "new"
    shutil.copytree(whole, begun)
    usual = os.open

    def read_only(path, *arguments, **options):
        if str(path).startswith(str(tmp_path)):
            raise OSError(errno.EROFS, "Read-only file system")
        return usual(path, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", read_only)
        for folder, arguments in ((new, search_arguments(new)), (begun, ["resume", begun])):
            code, out, err = run(*arguments)
            assert (code, out) == (2, "")
            assert err == f"evomal: {folder}/.run.lock: cannot be written: Read-only file system\n"
    assert list(new.iterdir()) == []
    assert (begun / "run.sqlite").read_bytes() == (whole / "run.sqlite").read_bytes()


def test_a_folder_that_lets_no_journal_be_made_stops_the_search(run, whole, tmp_path, after_a_generation):  # noqa: F811
    journal = tmp_path / "run.sqlite-journal"
    after_a_generation(lambda path: journal.mkdir())
    code, out, err = run(*search_arguments(tmp_path))
    assert (code, out) == (1, "")
    said = f"evomal: {tmp_path / 'run.sqlite'}: reading or writing failed; what was recorded before is kept"
    assert err.splitlines()[-1] == said
    journal.rmdir()
    require_the_beginning_of(whole, tmp_path)
    assert run("resume", tmp_path)[0] == 0
    require_equal(whole, tmp_path)


def test_a_record_that_is_taken_away_stops_the_search(run, whole, tmp_path, after_a_generation):  # noqa: F811
    after_a_generation(lambda path: path.rename(tmp_path / "elsewhere"))
    code, out, err = run(*search_arguments(tmp_path))
    assert (code, out) == (1, "")
    said = (
        f"evomal: {tmp_path / 'run.sqlite'}: was moved or deleted while it was in use; what was recorded before is kept"
    )
    assert err.splitlines()[-1] == said
    (tmp_path / "elsewhere").rename(tmp_path / "run.sqlite")
    require_the_beginning_of(whole, tmp_path)


def test_other_settings_are_refused_with_the_keys_that_differ(whole):
    before = (whole / "run.sqlite").read_bytes()
    task = load_task("diabetes", "mlp:hidden=8")
    with pytest.raises(InputError) as caught:
        run_loop.search(task, folder=whole, seed=1, device="cpu", **{**SHORT, "meta_lr": 0.01, "tournament": 3})
    head, _, differing = str(caught.value).partition(": is the record of another search: ")
    assert head == str(whole / "run.sqlite")
    assert differing.split("; ") == [
        "meta_lr was 0.001 but is 0.01", "seed was 0 but is 1",
        "settings.tournament was 4 but is 3",
    ]  # fmt: skip
    assert (whole / "run.sqlite").read_bytes() == before


def test_other_threads_and_versions_are_refused_when_resuming(run, whole, monkeypatch):  # noqa: F811
    before = (whole / "run.sqlite").read_bytes()
    monkeypatch.setattr(run_loop, "versions", lambda: {**versions(), "torch": "1.0"})
    code, out, err = run("resume", whole, "--set", "threads=2")
    assert (code, out) == (2, "")
    differing = f'threads was 1 but is 2; versions.torch was "{versions()["torch"]}" but is "1.0"'
    assert err == f"evomal: {whole / 'run.sqlite'}: is the record of another search: {differing}\n"
    assert (whole / "run.sqlite").read_bytes() == before


def test_a_live_search_is_left_alone_then_stopped_by_ctrl_c_then_resumed(run, tmp_path):  # noqa: F811
    slower = {"meta_steps": 10, "training_steps": 80, "finalists": 1, "final_seeds": 1}
    folder, whole = tmp_path / "live", tmp_path / "whole"
    command = [sys.executable, "-c", INTERRUPTIBLE, *search_arguments(folder, **slower)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with begun(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 300
        while not (folder / "best.json").exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)  # in the middle of its second generation
        try:
            in_use = f"{folder}: the run is in use by process {process.pid} on {socket.gethostname()}"
            assert run("resume", folder) == (2, "", f"evomal: {in_use}\n")
            assert run(*search_arguments(folder))[0] == 2
            assert json.loads(run("runs", folder, "--json")[1])[0]["state"] == "running"
        finally:
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGCONT)
            out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == f"evomal: interrupted; resume with `evomal resume {folder}`"
    assert "Traceback" not in err
    assert json.loads(run("runs", folder, "--json")[1])[0]["state"] == "interrupted"
    assert run(*search_arguments(whole, **slower))[0] == 0
    require_the_beginning_of(whole, folder)
    assert run("resume", folder)[0] == 0
    require_equal(whole, folder)


FEW = {"generations": 2, "finalists": 1, "final_seeds": 1}


@pytest.fixture(scope="module")
def looped(tmp_path_factory):
    """A complete run in which the company of a candidate changes no bit of it."""
    folder = tmp_path_factory.mktemp("looped")
    assert commanded(search_arguments(folder, population_mode="looped", **FEW)) == 0
    return folder


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RuntimeError("the model\nfell over"), "evaluate failed: the model fell over"),
        (ZeroDivisionError("division by zero"), "evaluate failed: division by zero"),
        (MemoryError(), "evaluate failed: MemoryError"),
        (torch.OutOfMemoryError("tried to allocate 2.00 GiB"), "evaluate failed: tried to allocate 2.00 GiB"),
    ],
)
def test_a_raising_candidate_is_recorded_and_the_others_continue(run, looped, tmp_path, monkeypatch, error, sentence):  # noqa: F811
    with RunStore.read(looped) as store:
        usual = [one for one in store.candidates() if one.generation == 0]
    victim = next(candidate for candidate in usual if candidate.state is State.EVALUATED)
    evaluate = Engine.evaluate

    def fragile(engine, expressions, weights, **options):
        if Expression.parse(victim.genome) in expressions:
            raise error
        return evaluate(engine, expressions, weights, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "evaluate", fragile)
        code, out, _ = run(*search_arguments(tmp_path, population_mode="looped", **FEW))
    assert code == 0
    assert " 1 failed" in out
    with RunStore.read(tmp_path) as store:
        found = [one for one in store.candidates() if one.generation == 0]
        assert len(store.complete_chunks()) == FEW["generations"]
    assert (found[victim.index].state, found[victim.index].sentence) == (State.FAILED, sentence)
    assert [one for one in found if one.index != victim.index] == [one for one in usual if one.index != victim.index]
    assert run("resume", tmp_path)[1].splitlines()[:4] == out.splitlines()[:4]


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("evomal", "its meta-gradient or task loss was not finite at meta step 1"),
        ("gp-lfl", "the training loss or its gradient was not finite at step 2"),
    ],
)
def test_a_candidate_whose_training_is_not_finite_is_recorded_and_the_others_continue(run, tmp_path, method, sentence):  # noqa: F811
    save_loss(ExpressionLoss(EXPLOSIVE, kind="regression"), tmp_path / "explosive.json")
    options = ["--seed-with", tmp_path / "explosive.json", "--method", method, "--set", "filters=symbolic"]
    code, out, _ = run(*search_arguments(tmp_path / "run", *options, **FEW))
    assert code == 0
    assert " diverged" in out
    with RunStore.read(tmp_path / "run") as store:
        (first, *_), chunks = store.candidates(), store.complete_chunks()
    assert (first.genome, first.state, first.fitness) == (str(EXPLOSIVE), State.DIVERGED, float("inf"))
    assert first.sentence == sentence
    assert len(chunks) == FEW["generations"]
