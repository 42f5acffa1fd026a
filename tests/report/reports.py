"""Records that the tests of reports share: real ones, made by hand, and a stranger's."""

import json
from pathlib import Path

from evomal.runs import RunStore
from evomal.settings import SearchSettings
from evomal.verdict.folder import write_result
from tests.figures.records import record, row, settings
from tests.report.cards import HARMLESS, HOSTILE
from tests.verdict.results import comparison, entry

IN_REPORTS = HARMLESS | {
    "main", "nav", "a", "figure", "pre", "details", "summary", "polyline", "text", "figcaption", "circle",
    "mtext", "munder", "mover", "msub",
}  # fmt: skip
"""The elements of a report."""
SQUARE, ABSOLUTE, BENT = "square(sub(f, y))", "abs(sub(f, y))", "tanh(square(sub(f, y)))"
NO_HARDSHIPS = {"label_noise": 0.0, "asymmetric": False, "outliers": 0.0, "imbalance": 1.0, "fraction": 1.0}
WORDS = ["evomal", "search", "diabetes", "--model", "mlp:hidden=8", "--set", "population=2"]
SOURCE = {
    "tasks": ["diabetes"], "model": "mlp:hidden=8", "hardships": NO_HARDSHIPS,
    "command": {"words": WORDS, "folder": "/somewhere"},
}  # fmt: skip
ROWS = [
    row(0, 0, 0.5, genome=SQUARE, weights=(1.5, 1.0, 1.0), optimise=1.0, evaluate=2.0),
    row(0, 1, state="dead gradient", filter=0.5),
    row(1, 0, 0.5, genome=SQUARE, weights=(1.5, 1.0, 1.0), origin="elite", parents=(0,)),
    row(1, 1, 0.25, genome=ABSOLUTE, weights=(1.0, 1.0, 1.0), origin="mutation", parents=(0,), evaluate=2.0),
]


def written_run(folder: Path, rows=ROWS, *, complete: bool = True, **described) -> Path:
    """A run as `evomal search` records it, its candidates made by hand."""
    dumped = SearchSettings.preset("quick", population=2, threads=1).model_dump(mode="json")
    budgets = {name: dumped.pop(name) for name in ("max_time", "max_evaluations", "patience", "generations")}
    described = {"settings": dumped, "budgets": budgets, "source": SOURCE, **described}
    return record(folder, rows, complete=complete, **described)


def hostile_run(folder: Path) -> Path:
    """A stranger's: every text that a record can hold tries everything, and so do the files beside it."""
    text = HOSTILE[:-1]  # a lone surrogate cannot be recorded
    content = settings(method=text, metric=text)
    content["task"] = {"0": {"name": text, "model": text, "metric": text, text: {text: text}}}
    content |= {
        "device": text, "threads": text, "versions": {**content["versions"], text: text, "torch": text},
        "settings": {text: text, "population": text}, "source": {"tasks": [text], "model": text, "hardships": {}},
    }  # fmt: skip
    rows = [
        row(0, 0, 0.5, genome=text, origin=text, evaluate=1.0, **{text: 1.0}),
        row(0, 1, 0.6, genome=SQUARE, weights=(1.0, 1.0, 1.0)),
    ]
    with RunStore.create(folder, content) as store:
        store.write_chunk(0, rows)
        store.finish(text)
    rows = (
        entry(f"{text}\n[r]: http://e.vil\n![i][r] <p>", "plain", 0.1, [0.5, 0.5]),
        entry(text, "tuned", 0.1, [None, 1]),
    )
    write_result(comparison(*rows, task=text, metric=text, baseline=text, verdicts={text: ("undecided", text)}), folder)
    return folder


def hostile_comparison(folder: Path) -> Path:
    """A stranger's: words that were never typed, a lone surrogate among them."""
    folder.mkdir(exist_ok=True)
    content = comparison(words=["evomal", "compare", HOSTILE, "--losses", HOSTILE]).to_dict()
    (folder / "comparison.json").write_text(json.dumps(content))
    return folder
