"""The valid files that cases edit: losses of every kind, and folders that the real commands wrote."""

import contextlib
import io
import sys
from pathlib import Path
from unittest import mock

from evomal.cli import main
from evomal.losses import CATALOGUE, ExpressionLoss, NeuralLoss, TaylorLoss, save_loss

MODEL = ("--model", "mlp:hidden=4")
TINY = {
    "population": 3, "generations": 2, "meta_steps": 1, "training_steps": 1, "filter_steps": 1, "filter_samples": 4,
    "first_trees": 30, "surplus": 1.0, "final_steps": 1, "final_seeds": 1, "finalists": 1, "threads": 1,
}  # fmt: skip
"""Settings of searches that take a moment."""
_TREES = {
    "classification": ("mul(y, log(f))", "abs(log(mul(y, f)))", "sqrt(square(add(aq(f, y), tanh(max(f, 1)))))"),
    "regression": ("square(sub(f, y))", "abs(sub(f, y))", "log(add(1, min(square(sub(y, f)), sign(f))))"),
    "multilabel": ("mul(y, log(f))", "square(sub(y, f))"),
}


def settings_words(**changes: object) -> list[str]:
    """The settings of a short search as words of a command."""
    return [word for key, value in {**TINY, **changes}.items() for word in ("--set", f"{key}={value}")]


def run(*words: object) -> None:
    """Run a command that must succeed."""
    said = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["evomal", *map(str, words)]),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        code = None
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert not code, said.getvalue()


def build_corpus(top: Path) -> Path:
    """Write the files: `losses/`, a run in `run/` and a comparison of each kind in `compared/`."""
    (top / "losses").mkdir(parents=True)
    for number, loss in enumerate(_losses()):
        about = {"task": "diabetes", "method": "evomal", "seed": 1, "fitness": 0.5, "learning_rate": 0.01}
        save_loss(loss, top / "losses" / f"{number:02}-{type(loss).__name__}.json", provenance=about)
    compared = top / "compared"
    few = (*MODEL, "--seeds", "2", *settings_words(), "--out", compared)
    run("search", "diabetes", *MODEL, "--seed", 1, *settings_words(), "--out", top / "run")
    run("compare", "diabetes", "--losses", "huber", *few)
    run("compare", "diabetes", "--losses", "huber", "--rates", "0.1,0.01", *few[:-1], top / "rates")
    run("transfer", "--loss", "huber", "--to", "diabetes", *few[:-1], top / "transfer")
    return top


def _losses():
    yield from (ExpressionLoss(text, kind=kind) for kind, texts in _TREES.items() for text in texts)
    yield ExpressionLoss("mul(y, log(f))", [0.5, 2.0, -1.5], activation="softplus", weight=[1.0, 2.0], reduction="sum")
    yield TaylorLoss([0.1 * number for number in range(8)])
    layers = [[[0.5] * 2] * 3, [[0.25] * 3] * 3, [[1.0] * 3]]
    yield NeuralLoss(layers)
    yield from (made() for made in CATALOGUE.values())
