"""Analyses of runs, as a person meets them: of searches that were really made, and of odd records."""

import csv
import json
import sqlite3

import pytest

from evomal.methods.candidates import best_of
from evomal.runs import RunStore
from evomal.runs.finals import recorded_final
from evomal.runs.generations import summarised
from evomal.runs.measured_rivals import rivals_of
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.figures.records import record, row
from tests.searches import commanded, search_arguments

ONE_RUN = ("front", "rungs", "headroom", "ancestry")
KINDS = ("curves", "filters", "runtime", *ONE_RUN)
SUFFIXES = ("svg", "pdf", "png", "csv")
STRANGE = "\x1b[2J$x^$ 漢"


@pytest.fixture(scope="module")
def searches(tmp_path_factory):
    """A search by genetic programming and one at random."""
    top = tmp_path_factory.mktemp("searches")
    for method, seed in (("evomal", 1), ("random", 1)):
        assert commanded(search_arguments(top / f"{method}-{seed}", "--method", method, "--seed", seed)) == 0
    return top


@pytest.fixture
def columns(run, monkeypatch):  # noqa: F811
    """The data of a kind, without the files."""
    monkeypatch.setattr("evomal.figures.style.save_figure", lambda *_: [])

    def asked(kind, folder, out):
        code, text, err = run("analyse", kind, folder, "--out", out, "--json")
        assert (code, err) == (0, "")
        return json.loads(text)["data"]

    return asked


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("rungs", "headroom")])  # see test_headroom
def test_every_kind_prints_a_few_lines_and_writes_figure_and_data(run, searches, tmp_path, kind):  # noqa: F811
    folder = searches / "evomal-1" if kind in ONE_RUN else searches
    code, out, err = run("analyse", kind, folder, "--out", tmp_path / "figures")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    files = [tmp_path / "figures" / f"{kind}.{suffix}" for suffix in SUFFIXES]
    assert lines[-4:] == [f"wrote {path}" for path in files]
    assert lines[0].startswith("diabetes, mlp:hidden=8")
    assert max(map(len, lines[:-4])) <= 80
    assert sorted((tmp_path / "figures").iterdir()) == sorted(files)
    assert table(files[-1])


@pytest.mark.parametrize("kind", ["filters", "front"])
def test_json_is_the_data_of_the_figure(run, searches, tmp_path, kind):  # noqa: F811
    code, out, err = run("analyse", kind, searches / "evomal-1", "--out", tmp_path, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["kind"], found["files"]) == (kind, [str(tmp_path / f"{kind}.{suffix}") for suffix in SUFFIXES])
    rows = table(tmp_path / f"{kind}.csv")
    assert {name: len(column) for name, column in found["data"].items()} == dict.fromkeys(rows[0], len(rows))


def test_filters_are_those_of_the_database(columns, searches, tmp_path):
    data = columns("filters", searches / "evomal-1", tmp_path)
    database = sqlite3.connect(searches / "evomal-1" / "run.sqlite")
    of_generation = "SELECT COUNT(*) FROM candidates WHERE origin <> 'elite' AND generation = ?"
    for number, state, share in zip(data["generation"], data["outcome"], data["share"], strict=True):
        (total,) = database.execute(of_generation, (number - 1,)).fetchone()
        (count,) = database.execute(f"{of_generation} AND state = ?", (number - 1, state)).fetchone()
        assert share == pytest.approx(count / total)
    states = database.execute("SELECT DISTINCT state FROM candidates WHERE origin <> 'elite'").fetchall()
    database.close()
    assert set(data["outcome"]) == {state for (state,) in states}
    assert len(data["share"]) == 4 * len(states)


def test_all_agree_on_the_best(columns, searches, tmp_path):
    with RunStore.read(searches / "evomal-1") as store:
        best = best_of(store.candidates())
        winner, _ = recorded_final(store.settings, store.candidates(), store.trials()).winner
        rivals = rivals_of(store.trials())
    curves, front, family = (columns(kind, searches / "evomal-1", tmp_path) for kind in ("curves", "front", "ancestry"))
    rows = list(zip(curves["against"], curves["method"], curves["mean"], strict=True))
    assert min(mean for against, _, mean in rows if against != "rival") == best.fitness
    assert {name: mean for against, name, mean in rows if against == "rival"} == rivals
    assert [value for value, is_on in zip(front["value"], front["on front"], strict=True) if is_on][-1] == best.fitness
    assert (family["value"][-1], family["genome"][-1]) == (winner.fitness, winner.genome)
    assert (family["generation"][-1], family["place"][-1]) == (winner.generation + 1, winner.index)


def test_times_are_those_of_the_record(columns, searches, tmp_path):
    data = columns("runtime", searches / "random-1", tmp_path)
    with RunStore.read(searches / "random-1") as store:
        generations = summarised(store.candidates())
    for stage, mean in zip(data["stage"], data["mean seconds"], strict=True):
        assert mean == pytest.approx(sum(generation.seconds.get(stage, 0.0) for generation in generations))


def test_summaries_say_what_the_figures_show(run, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr("evomal.figures.style.save_figure", lambda *_: [])
    runs, out_folder = tmp_path / "runs", tmp_path / "out"
    first = [row(0, 0, 4.0, filter=1.0, evaluate=2.0), row(0, 1), row(1, 0, 2.0, origin="mutation", parents=[0])]
    record(runs / "a", first)
    record(runs / "b", [row(0, 0, 6.0, evaluate=1.0)], seed=1, complete=False)

    def said(kind, folder, *options):
        code, out, err = run("analyse", kind, folder, *options, "--out", out_folder)
        assert (code, err) == (0, "")
        return out.splitlines()

    assert said("curves", runs) == [
        "planted, linear, best validation mse",
        "  evomal    2 after 2 generations (n = 1 of 2)",
    ]
    assert said("filters", runs) == [
        "planted, linear",
        "  evomal    4 candidates of 2 searches: 3 evaluated (75%), 1 rejected (25%)",
    ]
    assert said("filters", runs, "--across-tasks")[0] == "mean over 1 task"
    assert said("runtime", runs) == [
        "planted, linear, cpu, 1 thread",
        "  evomal    2 ± 1.41 seconds, 2 searches (1 complete) of 1 to 2 generations:",
        "    filter 0.5, evaluate 1.5",
    ]
    assert said("front", runs / "b") == [
        "planted, linear, evomal: one loss trained, 1 on the front of size and mse",
        "  size   4         6  abs(sub(f, y))",
    ]
    assert said("ancestry", runs / "b") == [
        "planted, linear, evomal: mse 6 in generation 1, without ancestors",
        "there is only one generation, so no candidate has parents",
        "   1 initial           6  abs(sub(f, y))",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_odd_runs_end_in_a_sentence_and_a_figure(run, tmp_path, kind):  # noqa: F811
    record(tmp_path / "empty", [], complete=False)
    record(tmp_path / "rejected", [row(0, 0), row(0, 1, state="failed")])
    described = {"method": STRANGE, "task": STRANGE, "metric": STRANGE}
    odd = [row(0, 0, 1e308, genome=STRANGE), row(0, 1, -1e308, genome="abs($"), row(1, 0, 2.0, parents=[7, 0])]
    record(tmp_path / "strange", odd, **described)
    for name in ("empty", "rejected", "strange"):
        # Saved for good, so that whatever is drawn is rendered too.
        code, out, err = run("analyse", kind, tmp_path / name, "--out", tmp_path / "figures")
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert len(lines) > 4
        assert all(line.isprintable() for line in lines)
        assert max(map(len, lines[:-4])) <= 80
        assert (tmp_path / "figures" / f"{kind}.png").stat().st_size > 500


@pytest.mark.parametrize("kind", KINDS)
def test_bad_requests_get_one_sentence(run, tmp_path, kind):  # noqa: F811
    damaged = record(tmp_path / "damaged", [row(0, 0, 1.0)]) / "run.sqlite"
    damaged.write_bytes(damaged.read_bytes()[:-4096])
    for folder, sentence in (
        (tmp_path / "nowhere", f"evomal: {tmp_path / 'nowhere'}: is not a folder\n"),
        (damaged, f"evomal: {damaged}: is not a folder\n"),
        (damaged.parent, f"evomal: {damaged}: is damaged ("),
    ):
        code, out, err = run("analyse", kind, folder, "--out", tmp_path / "figures")
        assert (code, out) == (2, "")
        assert err.startswith(sentence)
        assert err.count("\n") == 1
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize("kind", ONE_RUN)
def test_one_run_is_asked_for_by_name(run, tmp_path, kind):  # noqa: F811
    for name in ("a", "b"):
        record(tmp_path / name, [row(0, 0, 1.0)])
    code, out, err = run("analyse", kind, tmp_path, "--out", tmp_path / "figures")
    assert (code, out) == (2, "")
    assert err == f"evomal: one run was expected but got 2: name one of them, such as {tmp_path / 'a'}\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_without_runs_is_bad_input_and_nothing_is_written(run, tmp_path, kind):  # noqa: F811
    (tmp_path / "none").mkdir()
    for form in ([], ["--json"]):
        code, out, err = run("analyse", kind, tmp_path / "none", "--out", tmp_path / "figures", *form)
        assert (code, out, err) == (2, "", f"evomal: there is no run in {tmp_path / 'none'}\n")
    assert not (tmp_path / "figures").exists()
