"""`evomal analyse`: the kinds about losses as functions, as a person meets them."""

import csv
import json

import pytest

from evomal.cli import analysing
from evomal.figures.shape_panels import FAMILIES
from evomal.losses import CATALOGUE, ExpressionLoss, named_loss, save_loss
from evomal.units import Units
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.report.cards import hostile_loss

SUFFIXES = ("svg", "pdf", "png", "csv")


@pytest.fixture
def learned(tmp_path):
    path = tmp_path / "learned.json"
    save_loss(ExpressionLoss("abs(log(mul(y, f)))", [1.5, 1.0, 1.0, 1.2]), path)
    return path


@pytest.fixture
def shown_figures(monkeypatch):
    """What would be saved and printed, without the time it takes to render: name, columns, summary."""
    shown = []
    monkeypatch.setattr(
        analysing, "show", lambda name, data, figure, summary, **_: shown.append((name, data.columns(), list(summary)))
    )
    return shown


def checked_files(out, folder, name):
    """The summary above the names of the files, all of which are there."""
    lines = out.splitlines()
    assert lines[-4:] == [f"wrote {folder / name}.{suffix}" for suffix in SUFFIXES]
    assert {file.name for file in folder.iterdir()} == {f"{name}.{suffix}" for suffix in SUFFIXES}
    assert max(map(len, lines[:-4])) <= 80
    return lines[:-4]


def test_shapes_of_names_and_files(run, tmp_path, learned):  # noqa: F811
    folder = tmp_path / "figures"
    code, out, err = run("analyse", "shapes", "focal:gamma=1", learned, "--out", folder)
    assert (code, err) == (0, "")
    assert checked_files(out, folder, "shapes") == [
        "loss and gradient by f over an output f, C = 10; lowest as target:",
        "focal:gamma=1: at f = 1.00",
        "learned: at f = 0.83",
    ]
    with (folder / "shapes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["loss"] for row in rows} == {"focal:gamma=1", "learned"}


def test_the_help_names_every_family(run):  # noqa: F811
    _, out, _ = run("analyse", "shapes", "--help")
    described = " ".join(out.replace("│", " ").split())
    *others, last = FAMILIES
    assert f"A family of losses: {', '.join(others)} or {last};" in described


def test_shapes_of_all_families_where_none_is_named(run, shown_figures, tmp_path):  # noqa: F811
    assert run("analyse", "shapes", "--out", tmp_path)[0] == 0
    ((name, columns, summary),) = shown_figures
    assert name == "shapes"
    assert list(dict.fromkeys(columns["loss"])) == [
        "absolute-ce", "label-smoothing", "sparse-label-smoothing", "focal", "focal-sparse-label-smoothing, ξ = 0.2",
        "focal-sparse-label-smoothing, γ = 2",
    ]  # fmt: skip
    assert max(map(len, summary)) <= 80
    assert summary[5] == "focal-sparse-label-smoothing, ξ = 0.2: at f = 0.82 (γ = 0) to 0.51 (γ = 5)"


def test_json_is_the_figure_s_data(run, tmp_path):  # noqa: F811
    code, out, _ = run("analyse", "behaviour", "label-smoothing", "--json", "--out", tmp_path)
    data = json.loads(out)
    assert (code, data["kind"]) == (0, "behaviour")
    assert data["data"]["formula"] == ["xi", "-C*xi + C + xi", "oo", "-xi + 1 + xi/C"]
    assert data["data"]["value"] == [0.1, pytest.approx(9.1), None, pytest.approx(0.91)]
    assert data["files"] == [str(tmp_path / f"behaviour.{suffix}") for suffix in SUFFIXES]


def test_surfaces_of_regression_losses(run, tmp_path):  # noqa: F811
    folder = tmp_path / "figures"
    code, out, err = run("analyse", "shapes", "mse", "mae", "--surface", "--out", folder)
    assert (code, err) == (0, "")
    assert checked_files(out, folder, "surfaces") == [
        "loss over target y and output f, both from -3 to 3",
        "mse: from 0 to 36",
        "mae: from 0 to 6",
    ]


def test_figures_of_losses_with_units_are_of_standardised_values(run, tmp_path):  # noqa: F811
    path, folder = tmp_path / "mine.json", tmp_path / "figures"
    save_loss(named_loss("mae").in_units(Units(152.1, 77.0)), path)
    code, out, _ = run("analyse", "shapes", path, "--out", folder)
    assert (code, out.splitlines()[0]) == (
        0, "loss and gradient by f over the error f - y, in standardised units; lowest:"
    )  # fmt: skip
    code, out, _ = run("analyse", "shapes", path, "--surface", "--out", folder)
    assert out.splitlines()[0] == "loss over target y and output f, both from -3 to 3, in standardised units"


def test_behaviour_says_what_happens_at_both_ends(run, tmp_path, learned):  # noqa: F811
    folder = tmp_path / "figures"
    code, out, err = run("analyse", "behaviour", "label-smoothing", learned, "--classes", 5, "--out", folder)
    assert (code, err) == (0, "")
    assert checked_files(out, folder, "behaviour") == [
        "push δ = -∂L/∂f, non-target / target, at C = 5",
        "label-smoothing",
        "  null epoch: 0.1 / 4.6  (xi / -C*xi + C + xi)",
        "  near zero error: inf / 0.92  (oo / -xi + 1 + xi/C)",
        "  near zero training error it raises the others more and pushes the target back",
        "learned",
        "  null epoch: 0 / 7.5  (0 / 1.5*C)",
        "  near zero error: 0 / -1.5",
        "  near zero training error it pushes the target's probability back",
    ]


@pytest.mark.parametrize(
    ("expression", "remark"),
    [
        ("add(" * 40 + "mul(f, y)" + ", f)" * 40, "  4 of 4 are numeric: SymPy found no formula"),
        ("abs(log(mul(y, f)))", "  with ε = 1e-7 it is -1 (target, zero error)"),
    ],
    ids=["large", "epsilon"],
)
def test_behaviour_names_what_is_numeric_and_what_epsilon_changes(run, shown_figures, tmp_path, expression, remark):  # noqa: F811
    path = tmp_path / "loss.json"
    save_loss(ExpressionLoss(expression), path)
    assert run("analyse", "behaviour", path)[0] == 0
    assert shown_figures[0][2][-1] == remark


@pytest.mark.long
def test_smoothing_cost_is_measured(run, tmp_path):  # noqa: F811
    folder = tmp_path / "figures"
    arguments = ("--classes", "3,50", "--rounds", 2, "--device", "cpu", "--threads", 1)
    code, out, err = run("analyse", "smoothing-cost", *arguments, "--out", folder)
    assert (code, err) == (0, "")
    lines = checked_files(out, folder, "smoothing-cost")
    assert lines[0].startswith("forward and backward, median of 2 rounds; ")
    assert [line.partition(" = ")[0] for line in lines[1:]] == [
        "with log-softmax: label smoothing (torch) / sparse",
        "with log-softmax: label smoothing (evomal) / sparse",
        "without log-softmax: label smoothing / sparse",
    ]
    assert all(" at 3, " in line and line.endswith(" at 50") for line in lines[1:])


def test_a_stranger_s_file_is_shown_harmlessly(run, shown_figures, tmp_path):  # noqa: F811
    path = hostile_loss(tmp_path)
    assert run("analyse", "shapes", path, "--out", tmp_path / "figures")[0] == 0
    assert all(line.isprintable() for line in shown_figures[0][2])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["shapes", "focl"], f"a loss must be a name ({', '.join(CATALOGUE)}) or a loss file, but there is no 'focl'"),
        (["shapes", "focal:gamma=two"], "focal: gamma must be a number but got 'two'"),
        (["shapes", "focal:delta=2"], "focal has no option 'delta': its options are gamma"),
        (["shapes", "focal", "focal"], "focal is given twice"),
        (["shapes", "--family", "focals"], "there is no family named 'focals': did you mean 'focal'?"),
        (["shapes", "ce", "mse"], "the losses of one figure must be of one kind, but ce is for classification, mse is "
         "for regression"),
        (["shapes", "--surface"], "--surface needs the names or files of regression losses, and takes neither --family "
         "nor --classes"),
        (["shapes", "mse", "--surface", "--classes", "10"], "--surface needs the names or files of regression losses, "
         "and takes neither --family nor --classes"),
        (["shapes", "mse", "--classes", "10"], "--classes is for classification losses, but mse is for regression"),
        (["shapes", "ce", "--surface"], "a surface over y and f needs a regression loss, but ce is for classification"),
        (["shapes", "{folder}"], "{folder}: must be a regular file but is a folder"),
        (["behaviour", "mse"], "mse is for regression, but δ at f = 1/C is about classification"),
        (["behaviour", "--classes", "1"], "classes must be at least 2 but got 1"),
        (["smoothing-cost", "--classes", "3,x"], "classes must be whole numbers, comma-separated, but got '3,x'"),
        (["smoothing-cost", "--classes", ""], "--classes is empty: is a variable not set?"),
        (["smoothing-cost", "--device", "abacus"], "device must be auto, cpu, cuda, cuda:0, mps but got 'abacus'"),
    ],
)  # fmt: skip
def test_bad_requests_get_one_sentence_and_write_nothing(run, tmp_path, arguments, sentence):  # noqa: F811
    filled = [argument.format(folder=tmp_path) for argument in arguments]
    code, out, err = run("analyse", *filled, "--out", tmp_path / "figures")
    assert (code, out, err) == (2, "", f"evomal: {sentence.format(folder=tmp_path)}\n")
    assert not (tmp_path / "figures").exists()
