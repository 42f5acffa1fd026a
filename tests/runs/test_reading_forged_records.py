"""A record that makes no sense is one sentence, for whoever reads runs, and hides no other run."""

import json

import pytest

from evomal.errors import EvomalError, InputError
from evomal.methods.candidates import genome_from
from evomal.report.run_report import run_report
from evomal.runs import RunState, RunStore
from evomal.runs import reading as module
from evomal.runs.reading import load_run, read_runs
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.report.reports import ROWS, written_run
from tests.runs.forgeries import RECORD, with_candidates, with_setting
from tests.runs.test_store import SETTINGS, written


def nested(levels):
    value = 0
    for _ in range(levels):
        value = [value]
    return value


SENSELESS_SETTINGS = [
    ("settings", [1, 2], "its settings must be an object but is of type list"),
    ("settings", "x", "its settings must be an object but is of type str"),
    ("settings", None, "its settings must be an object but is of type NoneType"),
    ("budgets", [[]], "its budgets must be an object but is of type list"),
    ("workplace", 7, "its workplace must be an object but is of type int"),
    ("task", ["diabetes"], "its task must be an object but is of type list"),
    ("seed", 10**4000, "its settings hold a number of more than 100 digits"),
    ("source.hardships.outliers", -(10**101), "its settings hold a number of more than 100 digits"),
    ("task.0", nested(30), "its settings are nested more than 20 levels deep"),
]
NO_GENOMES = [
    "[[1.0]]", "[1.0", "[true]", '["a"]', "[1e999]", f"[{'9' * 400}]", f"[{'9' * 5000}]", "[" * 100_000, "add(y, f",
    "(((", "abs(" * 30_000, "softplus(f)",
]  # fmt: skip


def refusal(folder):
    with pytest.raises(InputError) as caught:
        load_run(folder)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 1000
    return sentence


@pytest.mark.parametrize(("key", "value", "sentence"), SENSELESS_SETTINGS)
def test_senseless_settings_are_one_sentence(tmp_path, key, value, sentence):
    with_setting(tmp_path, key, value)
    assert refusal(tmp_path) == f"{tmp_path / RECORD}: is damaged ({sentence})"


@pytest.mark.parametrize("genome", NO_GENOMES, ids=lambda text: text[:20])
def test_a_text_that_is_no_genome_has_no_size_and_hides_nothing(run, tmp_path, genome):  # noqa: F811
    with_candidates(tmp_path, genome=genome)
    assert load_run(tmp_path).candidates[-1].size is None
    with pytest.raises(InputError):
        genome_from(genome)
    assert run("runs", tmp_path)[1].splitlines()[0] == f"{tmp_path}: complete, 2 generations, best 0.25"
    data = run_report(tmp_path).as_data()
    assert set(data["best"][0]["losses"]["size"]) == {None}


def test_whatever_else_goes_wrong_is_one_sentence(tmp_path, monkeypatch):
    written(tmp_path, 1)

    def failing(folder):
        raise ZeroDivisionError("one\ntwo " + 500 * "x")

    monkeypatch.setattr(module, "held_for", failing)
    assert refusal(tmp_path) == (
        f"{tmp_path / RECORD}: cannot be understood (ZeroDivisionError: one two {'x' * (300 - 8)})"
    )


def test_what_the_machine_refuses_is_not_called_damaged(tmp_path, monkeypatch):
    written(tmp_path, 1)

    def refusing(path, **_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("evomal.runs.database.require_regular", refusing)
    with pytest.raises(EvomalError) as caught:
        load_run(tmp_path)
    assert not isinstance(caught.value, InputError)


def test_all_that_is_recorded_is_read(tmp_path):
    written(tmp_path, 3)
    found = load_run(str(tmp_path))
    assert (found.folder, found.state, found.settings) == (tmp_path, RunState.INTERRUPTED, SETTINGS)
    assert (len(found.candidates), found.ending, found.forced) == (15, None, ())
    assert found.created <= found.written
    with RunStore.open(tmp_path) as store:
        assert load_run(tmp_path).state is RunState.RUNNING
        store.finish("done")
    assert (load_run(tmp_path).state, load_run(tmp_path).ending) == (RunState.COMPLETE, "done")


def test_a_run_that_is_being_written_is_read_at_one_moment(tmp_path, monkeypatch):
    written(tmp_path, 1)
    candidates = RunStore.candidates

    def ended_meanwhile(self):
        with pytest.raises(EvomalError, match="another program kept it locked"):  # the writer waits for the reader
            written(tmp_path, 2, begin=1)
        return candidates(self)

    monkeypatch.setattr("evomal.runs.database.PATIENCE_SECONDS", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "candidates", ended_meanwhile)
        assert len(load_run(tmp_path).candidates) == 5


@pytest.fixture
def several(tmp_path):
    """A sound run beside damaged and forged ones, and how many these are."""
    written_run(tmp_path / "sound")
    with_setting(tmp_path / "list", "settings", [1])
    with_setting(tmp_path / "huge", "seed", 10**4000)
    with_candidates(tmp_path / "fitness", fitness="x")
    (tmp_path / "folder" / RECORD).mkdir(parents=True)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / RECORD).write_text("no record")
    written_run(tmp_path / "truncated")
    content = (tmp_path / "truncated" / RECORD).read_bytes()
    (tmp_path / "truncated" / RECORD).write_bytes(content[: len(content) // 2])
    return tmp_path, 6


def test_the_list_has_one_line_for_each_and_shows_the_others(run, several):  # noqa: F811
    top, damaged = several
    code, out, err = run("runs", top)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert f"{top / 'sound'}: complete, 2 generations, best 0.25" in lines
    assert f"    {top / 'list' / RECORD}: is damaged (its settings must be an object but is of type list)" in lines
    assert sum(": damaged, 0 generations" in line for line in lines) == damaged
    states = {row["folder"]: row["state"] for row in json.loads(run("runs", top, "--json")[1])}
    assert [name for name, state in states.items() if state != "damaged"] == [str(top / "sound")]
    assert len(states) == 1 + damaged


def test_the_report_is_about_the_others_and_names_each(run, several):  # noqa: F811
    top, damaged = several
    code, out, err = run("report", top, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [row["folder"] for row in found["runs"]] == [str(top / "sound")]
    left_out = [text for text in found["warnings"] if text.startswith("left out: ")]
    assert len(left_out) == damaged
    assert (
        f"left out: {top / 'list' / RECORD}: is damaged (its settings must be an object but is of type list)"
        in left_out
    )
    page = (top / "report.html").read_text()
    assert page.count("left out: ") == damaged


@pytest.mark.parametrize("kind", ["curves", "filters", "runtime", "front"])
def test_an_analysis_is_about_the_others(run, several, kind):  # noqa: F811
    top, _ = several
    code, _, err = run("analyse", kind, top, "--out", top / "figures")
    assert (code, err) == (0, "")


def test_alone_it_is_refused_in_that_sentence(run, tmp_path):  # noqa: F811
    folder = with_setting(tmp_path, "settings", [1])
    sentence = f"evomal: {folder / RECORD}: is damaged (its settings must be an object but is of type list)\n"
    for command in (("report",), ("resume",), ("analyse", "curves")):
        assert run(*command, folder) == (2, "", sentence)


def test_texts_of_a_stranger_do_nothing_to_the_terminal(run, tmp_path):  # noqa: F811
    folder = with_setting(tmp_path / "a", "method", "\x1b[2Jevomal\n" + 2000 * "x")
    code, out, _ = run("runs", folder)
    assert code == 0
    assert "\x1b" not in out
    assert [line[:30] for line in out.splitlines()][1] == r"    planted, \x1b[2Jevomal\nxx"
    assert max(map(len, out.splitlines())) <= 1000


def test_the_sound_run_stays_readable(tmp_path):
    """The rules above do not refuse what a search writes."""
    written_run(tmp_path)
    assert [row.genome for row in load_run(tmp_path).candidates] == [row.genome for row in ROWS]
    assert read_runs([tmp_path]).runs[0].task == "planted, linear"
