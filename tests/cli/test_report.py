"""`evomal report`, as a person meets it: on searches and comparisons that were really made."""

import json
import shlex

import pytest

from evomal.losses import ExpressionLoss, save_loss
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.protocols import OPTIONS
from tests.report.cards import Tags
from tests.report.reports import hostile_run, written_run
from tests.searches import commanded, dump_of, search_arguments

SHORT = (
    "population=4", "generations=1", "meta_steps=2", "training_steps=10", "filter_steps=10", "final_steps=10",
    "finalists=1", "final_seeds=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("searched") / "a b"
    options = ("--seed", 2, "--method", "gp-lfl", "--fraction", 0.5)
    assert commanded(search_arguments(folder, *options, generations=2, finalists=2, final_seeds=2)) == 0
    return folder


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared") / "c"
    settings = [*OPTIONS, *(text for change in SHORT for text in ("--set", change))]
    arguments = ["compare", "diabetes", "--model", "mlp:hidden=8", "--methods", "random,evomal", "--losses", "huber"]
    arguments += ["--seeds", "2", "--search-seeds", "2", "--tune-lr", "2", "--device", "cpu", "--no-rescale"]
    assert commanded([*arguments, *settings, "--out", str(folder)]) == 0
    return folder


def repeated(data):
    """Do what the report says, and give where it was done."""
    words = shlex.split(data["command"])
    assert words[0] == "evomal"
    assert commanded(words[1:]) == 0
    return words[-1]


def without_command(path):
    return {key: value for key, value in json.loads(path.read_text()).items() if key != "command"}


def test_a_page_is_written_into_the_run_s_folder(run, searched):  # noqa: F811
    code, out, err = run("report", searched)
    assert (code, err) == (0, "")
    page = searched / "report.html"
    assert out == f"wrote {page} ({len(page.read_bytes()) / 1000:.0f} kB)\n"
    assert Tags(page.read_text()).text.count("diabetes, mlp:hidden=8, fraction 0.5: gp-lfl") == 2
    assert len(page.read_bytes()) < 3_000_000


def test_the_command_of_a_report_repeats_the_search_exactly(run, searched):  # noqa: F811
    code, out, _ = run("report", searched, "--json")
    data = json.loads(out)
    assert code == 0
    assert set(data) == {"title", "runs", "verdicts", "best", "command", "warnings", "files"}
    assert data["files"] == [str(searched / "report.html")]
    assert "a b-again" in data["command"]
    assert dump_of(repeated(data)) == dump_of(searched)


def test_the_command_of_a_comparison_repeats_it_exactly(run, compared):  # noqa: F811
    code, out, err = run("report", compared, "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert [entry["method"] for entry in data["runs"]] == ["evomal", "evomal", "random", "random"]
    assert len(data["verdicts"]) == 3
    again = repeated(data)
    assert (compared.parent / again / "comparison.md").read_text() == (compared / "comparison.md").read_text()
    assert without_command(compared.parent / again / "comparison.json") == without_command(compared / "comparison.json")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["transfer", "--to", "diabetes", "--loss", "mine.json", "--no-rescale"], "transfer.json"),
        (["compare", "diabetes", "--losses", "mine.json,huber", "--rates", "0.01,0.02"], "learning-rates.json"),
    ],
)
def test_losses_from_files_transfers_and_rates_are_repeated_exactly(run, tmp_path, monkeypatch, words, name):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    save_loss(ExpressionLoss("abs(sub(y, f))", kind="regression"), "mine.json")
    more = ["--model", "mlp:hidden=8", "--seeds", "2", "--set", "final_steps=20", "--device", "cpu"]
    assert commanded([*words, *more, "--out", "here"]) == 0
    code, out, err = run("report", "here", "--json")
    assert (code, err) == (0, "")
    again = repeated(json.loads(out))
    assert without_command(tmp_path / again / name) == without_command(tmp_path / "here" / name)
    assert f"Run it from the folder {tmp_path}." in (tmp_path / "here" / "report.html").read_text()


def test_a_page_can_be_written_elsewhere(run, tmp_path):  # noqa: F811
    out = tmp_path / "page.html"
    code, said, err = run("report", written_run(tmp_path / "a", []), "--out", out)
    assert (code, err) == (0, "")
    assert said.split(" (")[0] == f"wrote {out}"
    assert not (tmp_path / "a" / "report.html").exists()


@pytest.mark.parametrize("complete", [True, False])
def test_a_run_in_which_nothing_survived_has_a_report(run, tmp_path, complete):  # noqa: F811
    written_run(tmp_path / "a", [], complete=complete)
    assert run("report", tmp_path / "a")[0] == 0
    assert "has not recorded any candidate yet." in (tmp_path / "a" / "report.html").read_text()


def test_a_stranger_s_run_has_a_report(run, tmp_path):  # noqa: F811
    code, out, err = run("report", hostile_run(tmp_path / "a"), "--json")
    assert (code, err) == (0, "")
    assert out.isascii()
    assert json.loads(out)["command"] is None


def test_bad_input_is_one_sentence(run, tmp_path):  # noqa: F811
    assert run("report", tmp_path) == (2, "", f"evomal: {tmp_path}: contains neither a run nor a comparison\n")
    assert run("report", tmp_path / "x") == (2, "", f"evomal: {tmp_path / 'x'}: is not a folder\n")
    written_run(tmp_path / "a")
    code, _, err = run("report", tmp_path / "a", "--out", tmp_path / "none" / "x.html")
    assert (code, err.count("\n")) == (2, 1)
    assert "cannot be written" in err
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.sqlite").write_text("no record")
    code, _, err = run("report", tmp_path / "b")
    assert (code, err.count("\n")) == (2, 1)
