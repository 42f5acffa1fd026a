"""The command of a comparison, from the files it left; tests/test_cli_report.py also runs it."""

import json

import pytest

from evomal.analysis.repeat_comparisons import repeat_comparison

NO_HARDSHIPS = {"label_noise": 0.0, "asymmetric": False, "outliers": 0.0, "imbalance": 1.0, "fraction": 1.0}
RECORD = {"dataset": "diabetes", "seed": 0, "model": "mlp:hidden=8", "hardships": {**NO_HARDSHIPS, "outliers": 0.1}}
LOG = {
    "optimizer": "adam", "device": "cpu", "population_mode": "auto", "precision": "float32", "threads": 1,
    "recipe": {"lr": 0.02}, "steps": 50,
}  # fmt: skip


def written(folder, names=("mse", "huber", "mae"), *, rescaled=True, **changes):
    rows = [{"name": name, "variant": "plain"} for name in names]
    rows += [{"name": name, "variant": "rescaled"} for name in names[1:] if rescaled]
    content = {
        "record": RECORD, "baseline": "mse", "rows": rows, "seeds": [1000, 1001], "search_seeds": [], "trials": 0,
        **changes,
    }  # fmt: skip
    (folder / "comparison.json").write_text(json.dumps(content))
    (folder / "trainings.jsonl").write_text(json.dumps(["checksum", {"comparison": LOG}]) + "\nmore\n")
    return folder


def test_given_losses_have_their_settings_from_the_log(tmp_path):
    assert repeat_comparison(written(tmp_path), ()) == (
        "evomal compare diabetes --model mlp:hidden=8 --outliers 0.1 --losses huber,mae --seeds 2 "
        "--set optimizer=adam --set lr=0.02 --set final_steps=50 --set device=cpu --set threads=1 "
        f"--out {tmp_path}-again"
    )


def test_tuning_and_rescaling_are_typed_where_they_were_done_otherwise(tmp_path):
    command = repeat_comparison(written(tmp_path, rescaled=False, trials=3), ())
    assert " --tune-lr 3 --no-rescale " in command


@pytest.mark.parametrize(
    "changes",
    [
        {"names": ("mse", "mine")},  # from a file whose place is not recorded
        {"record": {**RECORD, "dataset": "own"}},
        {"record": {**RECORD, "hardships": {**NO_HARDSHIPS, "fraction": 0.5}}},  # which the command does not take
        {"rows": [{"variant": "plain"}]},
        {"seeds": 3},
        {"record": None},
    ],
)
def test_what_cannot_be_typed_has_no_command(tmp_path, changes):
    assert repeat_comparison(written(tmp_path, **changes), ()) is None


def test_files_that_are_missing_or_broken_have_no_command(tmp_path):
    assert repeat_comparison(tmp_path, ()) is None
    written(tmp_path)
    (tmp_path / "trainings.jsonl").write_text("{")
    assert repeat_comparison(tmp_path, ()) is None
