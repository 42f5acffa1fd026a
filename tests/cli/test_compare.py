"""The commands around a verdict, as a person meets them."""

import json
import os

import pytest

from evomal.verdict.comparison import Comparison, RateCurve, Transfer
from evomal.verdict.folder import read_result
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.protocols import OPTIONS

SHORT = ["--model", "mlp:hidden=8", "--device", "cpu", "--set", "final_steps=20"]
SMALL = [
    "--set", "population=4", "--set", "generations=1", "--set", "meta_steps=1", "--set", "training_steps=5", "--set",
    "filter_steps=10", *OPTIONS,
]  # fmt: skip


def test_losses_are_compared_recorded_and_resumed(run, tmp_path):  # noqa: F811
    arguments = ["compare", "diabetes", *SHORT, "--losses", "huber,mae", "--seeds", "2", "--out", tmp_path / "mine"]
    code, out, err = run(*arguments)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "test mse after 20 steps, 2 seeds"
    assert [line.split()[0].rstrip(",") for line in lines[2:7]] == ["mse", "huber", "mae", "huber", "mae"]
    assert all(len(line) <= 80 for line in lines if not line.startswith("files:"))
    assert err.splitlines() == [
        "training with 3 losses, 2 seeds each",
        "training with 2 losses, 2 seeds each, rescaled",
    ]
    first = json.loads((tmp_path / "mine" / "comparison.json").read_text())
    assert "| mse | 0.01 |" in (tmp_path / "mine" / "comparison.md").read_text()
    log = (tmp_path / "mine" / "trainings.jsonl").read_bytes()
    code, out, _ = run(*arguments, "--json")
    again = json.loads(out)
    assert again.pop("command") == {"words": ["evomal", *map(str, arguments), "--json"], "folder": os.getcwd()}
    assert again == {key: value for key, value in first.items() if key != "command"}
    assert Comparison.from_dict(first).verdicts["huber"].kind == "undecided"
    assert (tmp_path / "mine" / "trainings.jsonl").read_bytes() == log
    code, _, err = run(*[one if one != "huber,mae" else "huber" for one in arguments])
    assert code == 0
    assert f"evomal: replaced {tmp_path / 'mine' / 'comparison.json'}, which was of another command" in err
    assert (tmp_path / "mine" / "trainings.jsonl").read_bytes() == log
    assert set(first) == {
        "format", "version", "task", "record", "metric", "higher_is_better", "steps", "milestones", "seeds",
        "search_seeds", "tune_lr", "rates", "baseline", "entries", "verdicts", "tuning", "command",
    }  # fmt: skip


def test_a_transfer_searches_there_and_judges_here(run, tmp_path):  # noqa: F811
    code, out, _ = run(
        "transfer", "--from", "diabetes", "--source-model", "mlp:hidden=4", "--to", "diabetes", *SHORT, *SMALL,
        "--methods", "taylorglo", "--seeds", "1", "--search-seeds", "2", "--no-rescale", "--json", "--out", tmp_path,
    )  # fmt: skip
    assert code == 0
    found = json.loads(out)
    assert found["source"] == "diabetes"
    assert len(found["fitnesses"]["taylorglo"]) == 2
    names = [entry["name"] for entry in found["comparison"]["entries"]]
    assert names == ["mse", "taylorglo", "taylorglo (best search)"]
    assert read_result(Transfer, tmp_path).to_dict() == found
    assert sorted(path.name for path in (tmp_path / "searches").iterdir()) == ["taylorglo-0", "taylorglo-1"]


def test_a_comparison_at_each_rate(run, tmp_path):  # noqa: F811
    code, out, _ = run(
        "compare", "diabetes", *SHORT, "--losses", "mae", "--seeds", "1", "--rates", "0.001,0.01", "--out", tmp_path
    )
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("lr ")] == ["lr 0.001", "lr 0.01"]
    assert list(read_result(RateCurve, tmp_path).comparisons) == [0.001, 0.01]


def test_interrupted_it_says_how_to_resume(run, tmp_path, monkeypatch):  # noqa: F811
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("evomal.verdict.trials.TrialTrainer.scores", interrupted)
    code, _, err = run("compare", "diabetes", *SHORT, "--seeds", "1", "--out", tmp_path / "mine")
    assert code == 130
    assert err.endswith(f"evomal: interrupted; give the same command again to resume in {tmp_path / 'mine'}\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare", "diabetes", "--losses", "mea"], "loss must be a name"),
        (["compare", "diabetes", "--rates", "0.01", "--tune-lr", "3"], "--tune-lr cannot be combined with --rates"),
        (["compare", "diabetes", "--rates", "0.01", "--tune-decay"], "--tune-decay cannot be combined with --rates"),
        (["compare", "diabetes", "--tune-decay"], "--tune-decay needs --tune-lr: both are tuned together"),
        (["transfer", "--to", "diabetes", "--loss", "mae", "--tune-decay"], "--tune-decay needs --tune-lr"),
        (["compare", "diabetes", "--losses", "ce"], "the task is regression, but ce is for classification"),
        (["compare", "diabetes", "--methods", "evomall"], "there is no method named 'evomall'"),
        (["compare", "diabetes", "--rates", "fast"], "rates must be comma-separated numbers but got 'fast'"),
        (["compare", "diabetes", "--search-each"], "--search-each needs --rates"),
        (["transfer", "--to", "diabetes"], "either --loss or --from must be given"),
        (["transfer", "--to", "diabetes", "--loss", "nothing.json"], "there is no 'nothing.json'"),
    ],
)
def test_bad_requests_get_one_sentence_and_change_nothing(run, tmp_path, monkeypatch, arguments, sentence):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments, "--out", "here")
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
