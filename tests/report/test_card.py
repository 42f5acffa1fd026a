"""The loss card: what it says, in every form."""

import dataclasses
import hashlib
import importlib.metadata
import json

import pytest

from evomal.errors import InputError
from evomal.losses import CATALOGUE, ExpressionLoss, save_loss
from evomal.report import loss_card
from evomal.report.card import terminal_lines
from evomal.units import Units
from evomal.verdict.folder import write_result
from tests.losses.test_files import EVERY_KIND
from tests.report.cards import COMPARISON, PROVENANCE, Tags
from tests.verdict.results import comparison, entry


def test_a_card_holds_what_the_file_says(loss_file):
    data = loss_card(loss_file).as_data()
    assert (data["name"], data["file"], data["kind"], data["task"]) == (
        "mine",
        "mine.json",
        "expression",
        "classification",
    )
    assert data["formula"] == "2*Abs(log(1.1*Abs(f*y)))"
    assert data["written"] == "abs(log(mul(y, f)))"
    assert data["parameters"] == [
        {"name": "log(mul(y, f))", "value": 2.0},
        {"name": "mul(y, f)", "value": 1.0},
        {"name": "y", "value": 1.0},
        {"name": "f", "value": 1.1},
    ]
    assert data["latex"].startswith(r"\left|2 \cdot \log")
    assert data["options"] == {"activation": "identity", "ignore_index": -100, "reduction": "mean"}
    assert {name: data["provenance"][name] for name in PROVENANCE} == PROVENANCE
    assert data["sha256"] == hashlib.sha256(loss_file.read_bytes()).hexdigest()
    assert data["versions"]["torch"] == importlib.metadata.version("torch")
    assert (data["comparison"], data["transfer"]) == (None, None)
    assert data["properties"][1] == {
        "name": "bounded below",
        "holds": True,
        "sentence": "does not keep falling towards log-odds of -1e6 or 1e6",
    }
    assert len(data["plot"]["p"]) == len(data["plot"]["sample: gradient"]) == 201
    json.dumps(data, allow_nan=False)


def test_the_activation_is_part_of_the_formula(tmp_path):
    save_loss(ExpressionLoss("square(sub(f, y))", kind="regression", activation="softplus"), tmp_path / "a.json")
    card = loss_card(tmp_path / "a.json")
    assert card.formula == "softplus((f - y)**2)"
    assert "<msup><mi>&ExponentialE;</mi>" in card.mathml


def test_class_weights_say_how_many_classes_there_are(tmp_path):
    save_loss(ExpressionLoss("mul(y, f)", weight=[1.0, 2.0, 0.5]), tmp_path / "a.json")
    card = loss_card(tmp_path / "a.json")
    assert card.shape.classes == 3
    assert ("weight", "1, 2, 0.5") in card.option_entries()


@pytest.mark.parametrize("name", EVERY_KIND)
def test_every_kind_of_loss_has_a_card_in_every_form(name, tmp_path):
    loss = EVERY_KIND[name]()
    save_loss(loss, tmp_path / "loss.json", provenance=PROVENANCE)
    card = loss_card(tmp_path / "loss.json")
    page = Tags(card.html())
    for text in (card.markdown(), page.text):
        assert card.subject in text
        assert card.formula in text
        assert all(entry.sentence in text.replace("\\*", "*") for entry in card.shape.range_of_validity)
        assert card.sha256 in text
    assert page.count("svg") == 1
    assert json.loads(json.dumps(card.as_data(), allow_nan=False))["kind"] == card.kind
    if name.startswith("named "):
        assert card.formula == CATALOGUE[name.removeprefix("named ")].definition
        assert page.count("math") == 1


def test_a_file_by_hand_has_no_provenance_and_says_so(tmp_path):
    path = tmp_path / "hand.json"
    path.write_text(
        '{"format": "evomal-loss", "version": 1, "kind": "expression", "task": "regression", "expression": "mul(y, f)"}'
    )
    card = loss_card(path)
    assert "## Provenance\n\nnone recorded\n" in card.markdown()
    assert "<h2>Provenance</h2>\n<p>none recorded</p>" in card.html()


def test_a_network_has_neither_latex_nor_typeset_formula(tmp_path):
    save_loss(EVERY_KIND["neural"](), tmp_path / "loss.json")
    card = loss_card(tmp_path / "loss.json")
    assert (card.latex, card.mathml) == (None, None)
    assert card.written == "matrices of 7×2, 7×7, 1×7"
    assert "LaTeX" not in card.html() + card.markdown()


def test_a_tree_of_thousands_of_nodes_is_cut_where_it_is_shown_and_whole_as_data(tmp_path):
    full = "f"
    for _ in range(10):
        full = f"add({full}, {full})"
    save_loss(ExpressionLoss(f"sub(y, {full})", kind="regression"), tmp_path / "loss.json")
    card = loss_card(tmp_path / "loss.json")
    assert len(card.as_data()["parameters"]) == 2048
    assert card.parameter_entries()[-1] == ("…", "2018 more in the file")
    assert card.as_data()["latex"].count("f_{") == 1024
    assert "evomal export loss.json --to latex" in card.html()
    for text in (card.markdown(), Tags(card.html()).text):
        assert card.written[:1_000] in text
        assert card.written[:1_200] not in text


def test_without_a_comparison_the_card_says_how_to_get_one(loss_file):
    card = loss_card(loss_file)
    sentences = (
        "not compared yet: evomal compare TASK --losses mine.json --out .",
        "not transferred yet: evomal transfer --loss mine.json --to TASK --out .",
    )
    for sentence in sentences:
        assert sentence in card.html()
        assert sentence in card.markdown()


def test_a_loss_searched_for_by_a_comparison_finds_it(loss_file, tmp_path):
    folder = tmp_path / "mine" / "searches" / "evomal-0"
    folder.mkdir(parents=True)
    copied = folder / "best.json"
    copied.write_bytes(loss_file.read_bytes())
    assert loss_card(copied).comparison is None
    (tmp_path / "mine" / "comparison.md").write_text(COMPARISON)
    assert loss_card(copied).comparison == COMPARISON.strip()
    (folder / "comparison.md").write_text("nearer")
    assert loss_card(copied).comparison == "nearer"


def test_a_result_beside_the_file_in_which_the_loss_took_no_part_is_not_shown(loss_file):
    own = json.loads(json.dumps(loss_card(loss_file).as_data()))["formula"]
    for formula, is_shown in ((own, True), (f"{own} + early stopping", True), ("Abs(f - y)", False)):
        row = entry("best", "plain", 0.1, [0.5, 0.5])
        losses = (dataclasses.replace(row.losses[0], formula=formula), None)
        rows = entry("mse", "plain", 0.1, [0.5, 0.5]), dataclasses.replace(row, losses=losses)
        write_result(comparison(*rows), loss_file.parent)
        assert (loss_card(loss_file).comparison is not None) == is_shown
    loss_file.with_name("comparison.json").write_text("{}")
    with pytest.raises(InputError, match=r"comparison\.json: "):
        loss_card(loss_file)


def test_texts_beside_the_file_are_taken(loss_file):
    loss_file.with_name("comparison.md").write_text(COMPARISON)
    loss_file.with_name("transfer.md").write_text("\n")
    card = loss_card(loss_file)
    assert card.comparison == COMPARISON.strip()
    assert card.transfer is None
    page = card.html()
    assert '<td style="text-align:right">0.1</td>' in page
    assert "<strong>-0.2</strong>" in page
    assert "<code>p &lt; 0.1</code>" in page
    assert "<h3>Details</h3>" in page
    assert Tags(page).count("h1") == 1  # the text's own title gives way to the section's
    assert "### Details\n" in card.markdown()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\xff\xfe", "is not a text file: byte 0 is not UTF-8"),
        (b"x" * 100_001, "must have at most 100,000 bytes but has more"),
        (None, "must be a regular file but is a folder"),
    ],
)
def test_a_text_beside_the_file_that_cannot_be_read_is_one_sentence(loss_file, content, sentence):
    beside = loss_file.with_name("comparison.md")
    beside.mkdir() if content is None else beside.write_bytes(content)
    with pytest.raises(InputError) as refusal:
        loss_card(loss_file)
    assert str(refusal.value) == f"{beside}: {sentence}"


def test_a_card_names_the_units_the_loss_was_learned_in(tmp_path):
    path = tmp_path / "mine.json"
    loss = ExpressionLoss("abs(sub(f, y))", kind="regression")
    sentence = "f: output, y: target, learned in standardised units: mean 152.1, scale 77"
    save_loss(loss.in_units(Units(152.1, 77.0)), path)
    card = loss_card(path)
    assert card.symbols == sentence
    assert f"{sentence}." in card.markdown().splitlines()
    assert sentence in card.html()
    assert sentence in " ".join(" ".join(terminal_lines(card)).split())
    data = card.as_data()
    assert (data["target_mean"], data["target_scale"]) == (152.1, 77.0)
    save_loss(loss, path)
    card = loss_card(path)
    assert card.symbols == "f: output, y: target"
    assert (card.as_data()["target_mean"], card.as_data()["target_scale"]) == (None, None)
