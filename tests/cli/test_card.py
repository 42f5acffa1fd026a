"""The card of a loss, as a person meets it."""

import json

import pytest

from evomal.report import loss_card
from evomal.report.card import terminal_lines
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.report.cards import HOSTILE, hostile_loss, saved_loss

SUFFIXES = ("html", "md", "svg", "pdf", "png", "csv")


def test_a_card_is_printed_and_nothing_written(run, tmp_path):  # noqa: F811
    path = saved_loss(tmp_path)
    code, out, err = run("card", path)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines == list(terminal_lines(loss_card(path)))
    assert lines[0] == "mine: an expression of 5 nodes for classification"
    assert max(map(len, lines)) <= 80
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_the_card_s_data(run, tmp_path):  # noqa: F811
    path = hostile_loss(tmp_path)
    code, out, err = run("card", path, "--json")
    assert (code, err) == (0, "")
    assert out.isascii()
    assert "\x1b" not in out
    data = json.loads(out)
    assert data.pop("files") == []
    assert data == loss_card(path).as_data()
    assert data["provenance"]["task"] == HOSTILE
    assert set(data) == {
        "name", "file", "kind", "task", "formula", "written", "parameters", "latex", "options", "properties", "plot",
        "provenance", "comparison", "transfer", "sha256", "versions", "target_mean", "target_scale",
    }  # fmt: skip


def test_written_files_are_named(run, tmp_path):  # noqa: F811
    path = saved_loss(tmp_path)
    files = [f"{tmp_path / 'deep' / 'cards' / 'mine-card'}.{suffix}" for suffix in SUFFIXES]
    code, out, _ = run("card", path, "--out", tmp_path / "deep" / "cards")
    assert code == 0
    assert out.splitlines() == [*terminal_lines(loss_card(path)), *(f"wrote {file}" for file in files)]
    code, out, _ = run("card", path, "--out", tmp_path / "deep" / "cards", "--json")
    assert json.loads(out)["files"] == files


def test_files_are_written_to_the_folder_and_nowhere_else(run, tmp_path):  # noqa: F811
    path = hostile_loss(tmp_path)
    before = set(tmp_path.iterdir())
    out = tmp_path / "cards"
    assert run("card", path, "--out", out)[0] == 0
    assert set(tmp_path.iterdir()) == {*before, out}
    base = "_b_onclick_x_a_2J_sha256_0000_i_http_e.vil_-card"
    assert {file.name for file in out.iterdir()} == {f"{base}.{suffix}" for suffix in SUFFIXES}
    assert (out / f"{base}.html").read_text() == loss_card(path).html()
    assert (out / f"{base}.md").read_text() == loss_card(path).markdown(f"{base}.svg")
    assert f"]({base}.svg)" in (out / f"{base}.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{folder}", "--out", "{folder}/cards"], "{folder}: must be a regular file but is a folder"),
        (["{folder}/none.json", "--out", "{folder}/cards"], "{folder}/none.json: there is no such file"),
        (["{bad}", "--out", "{folder}/cards"], "{bad}: a loss must use both y and f, but abs(f) does not use y"),
        (["{file}", "--out", "{file}/cards"], "{file}/cards: cannot be created: Not a directory"),
    ],
)
def test_bad_requests_get_one_sentence_and_write_nothing(run, tmp_path, arguments, sentence):  # noqa: F811
    path, bad = saved_loss(tmp_path), tmp_path / "bad.json"
    bad.write_text(path.read_text().replace("abs(log(mul(y, f)))", "abs(f)"))
    names = {"folder": tmp_path, "file": path, "bad": bad}
    before = sorted(tmp_path.rglob("*"))
    for form in ([], ["--json"]):
        code, out, err = run("card", *(argument.format(**names) for argument in arguments), *form)
        assert (code, out, err) == (2, "", f"evomal: {sentence.format(**names)}\n")
    assert sorted(tmp_path.rglob("*")) == before
