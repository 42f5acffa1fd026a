"""Folders with runs and comparisons, and the application that shows them, for tests of the live page."""

import math
from pathlib import Path

import numpy as np

from evomal.expression import Expression
from evomal.losses import named_loss, save_loss
from evomal.server.app import LivePages
from evomal.server.library import key_of
from tests.figures.records import record, row

TOKEN = "right-token"
GENOMES = ("abs(sub(f, y))", "square(sub(f, y))", "add(abs(sub(f, y)), square(sub(f, y)))", "abs(mul(f, sub(f, y)))")
HOSTILE = "<script>alert(1)</script>\"'`\n\u202e$(touch x)&amp;{{7*7}}"


def rows(generations: int, size: int = 6, first: int = 0) -> list:
    """Candidates of several generations, of which some were trained, on one or two rungs."""
    rng = np.random.default_rng(first)
    found = []
    for number in range(first, first + generations):
        for index in range(size):
            fitness = float(rng.uniform(0.1, 1)) / (1 + number) if index % 3 else math.inf
            genome = GENOMES[index % 4]
            found.append(
                row(
                    number, index, fitness, genome=genome, weights=[1.0] * (Expression.parse(genome).size - 1),
                    parents=(index, 1) if number else (), origin="crossover" if number else "initial", evaluate=0.5,
                )
            )  # fmt: skip
    return found


def run(folder: Path, generations: int = 3, **described) -> Path:
    """A run on diabetes, with rivals."""
    settings = {"metric": "mse", "task": "diabetes", "rivals": {"mse": 0.5, "huber": 0.4}, **described}
    settings.setdefault("budgets", {"generations": 5})
    settings.setdefault("source", {"tasks": ["diabetes"], "model": "linear", "hardships": {}})
    record(folder, rows(generations), **settings)
    save_loss(named_loss("mse"), folder / "best.json", provenance={"task": "diabetes"})
    return folder


def application(top: Path, **options) -> LivePages:
    """The application, which has looked at its folder once."""
    pages = LivePages(top, token=TOKEN, **options)
    pages.library.refresh()
    return pages


def address(top: Path, folder: Path, kind: str = "runs") -> str:
    """The address of the page of a folder."""
    return f"/{kind}/{key_of(folder, top)}"
