"""The pages of results are what their data render to, and claims are what the data show."""

import json
import shutil
from pathlib import Path

import pytest

from evomal.campaigns import pages, read_result
from evomal.campaigns.claims import PaperItem, read_claims
from evomal.campaigns.figures import draw_gains, gains
from evomal.campaigns.pages import CLAIMS, DATA, read_data
from evomal.campaigns.record import FigureCell
from evomal.campaigns.tables import MeasuredTable, summary_table, task_lines
from evomal.errors import InputError

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def docs(tmp_path):
    """A copy of what the pages are made of."""
    shutil.copytree(DOCS / "results", tmp_path / "docs" / "results")
    shutil.copytree(DOCS.parent / "campaigns", tmp_path / "campaigns")
    return tmp_path / "docs"


@pytest.fixture(scope="module")
def found():
    return pages.pages(DOCS)


def test_the_committed_pages_are_what_their_data_render_to(found):
    assert {name: (DOCS / name).read_text() for name in found} == found, "run `make results`"
    written = {f"results/{path.name}" for path in (DOCS / "results").glob("*.md")}
    assert written == found.keys() - {pages.PAGE, pages.INDEX}


def test_every_page_says_commit_hardware_n_and_command(found):
    for name, text in found.items():
        if name not in (pages.PAGE, pages.EVIDENCE, pages.INDEX):
            for fact in ("- command: `", "- commit: ", "- hardware: "):
                assert fact in text, name
            assert "- n: " in text or " final trainings, " in text, name


def test_data_are_written_as_they_were_read(tmp_path):
    for path in (DOCS / DATA).glob("*.json"):
        read_data(path).write(tmp_path / path.name)
        assert (tmp_path / path.name).read_text() == path.read_text()


def test_claims_follow_the_data(docs):
    path = docs / DATA / "searches.json"
    content = json.loads(path.read_text())
    rows = content["tasks"][0]["comparison"]["rows"]
    (row,) = [row for row in rows if (row["name"], row["variant"]) == ("mae", "tuned")]
    row["losses"][0]["test"] = [0.001] * 5
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        pages.pages(docs)
    assert str(caught.value) == (
        f"{docs / CLAIMS}: searches: outliers: evomal (thorough) against mae (tuned) must show 'even' for its claim "
        "but shows 'worse'"
    )


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (('task = "outliers"', 'task = "outlier"'), "searches has no task 'outlier'"),
        (('data = "searches"', 'data = "serches"'), "there is no data named 'serches'"),
        (("data = [", 'data = ["serches", '), "there is no result of a campaign named 'serches'"),
        (('row = "evomal (thorough)"', 'row = "evo"'), "outliers: there is no row 'evo' (tuned)"),
        (("least = 10, most = 35", "least = 10, most = 20"), "that random trained must be 10 to 20 % but is 10.2 to"),
        (('method = "random"', 'method = "ml4"'), "paper: the share that ml4 trained is not recorded"),
        (('data = "paper", method', 'data = "papers", method'), "there is no data named 'papers'"),
        (('verdict = "holds in part"', 'verdict = "perhaps"'), "claims.0.verdict: input should be 'holds'"),
        (('verdict = "open"', 'verdict = "holds"'), "must have evidence unless its verdict is open"),
    ],
)
def test_a_wrong_claim_is_said_in_one_sentence(docs, changed, sentence):
    path = docs / CLAIMS
    before, after = path.read_text().rsplit("[[claims]]", 1) if "open" in changed[0] else (path.read_text(), None)
    text = before.replace(*changed, 1) if after is None else f"{before}[[claims]]{after.replace(*changed, 1)}"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        pages.pages(docs)
    assert sentence in str(caught.value)
    assert str(caught.value).count(str(path)) == 1


# The labels of tables, figures and algorithms in the source of the paper, in their order.
TABLES = (
    "function-set", "meta-testing-results-classification", "meta-testing-results-regression", "meta-testing-transfer",
    "run-time", "meta-learned-loss-functions",
)  # fmt: skip
FIGURES = (
    "flowchart", "phase-transformer", "network", "meta-training-learning-curves", "meta-training-filters",
    "meta-learned-loss-functions", "loss-landscapes", "learning-rate", "learned-loss-function",
    "varying-learned-loss-function", "label-smoothing-loss", "learned-respresentations", "fast-label-smoothing-loss",
    "fastlsr-runtime", "proposed-loss-learning-curves", "focal_loss", "focal_sparse_label_smoothing_loss",
    "fast-label-smoothing-regularization-1", "fast-label-smoothing-regularization-2",
)  # fmt: skip
ALGORITHMS = ("meta-training", "meta-testing")


def test_every_table_and_figure_of_the_paper_is_there_or_says_why_not(found):
    listed = {"Table": ("table", TABLES), "Figure": ("fig", FIGURES), "Algorithm": ("alg", ALGORITHMS)}
    expected = [
        (f"{word} {number}", f"{prefix}:{label}")
        for word, (prefix, labels) in listed.items()
        for number, label in enumerate(labels, 1)
    ]
    claims = read_claims(DOCS / CLAIMS)
    assert [(item.item, item.label) for item in claims.paper] == expected
    declared = {path.stem for path in (DOCS.parent / "campaigns").glob("*.toml")}
    for item in claims.paper:
        assert item.campaign is None or item.campaign in declared
        assert f"| {item.item} |" in found[pages.INDEX]
    assert f"]({pages.INDEX})" in found[pages.PAGE]
    first = next(item for item in claims.paper if item.campaign)
    assert first.where({}).startswith(f"campaign `{first.campaign}`, not measured yet")
    measured = read_data(DOCS / DATA / "paper.json")
    assert first.where({first.campaign: measured}).startswith(f"[{first.campaign}](results/{first.campaign}.md)")


def test_a_figure_that_is_missing_in_a_measured_campaign_is_not_measured_yet():
    result = read_data(DOCS / DATA / "cifar10.json")
    made = result.tasks[0].comparison.made
    item = PaperItem(item="Figure 0", label="fig:x", title="a figure", campaign="cifar10", figure="landscapes")
    for kinds, place in ((("representations",), "campaign `cifar10`, not"), (("landscapes",), "[cifar10](results")):
        figures = tuple(FigureCell(kind=kind, made=made, lines=()) for kind in kinds)
        task = result.tasks[0].model_copy(update={"figures": figures})
        assert item.where({"cifar10": result.model_copy(update={"tasks": (task,)})}).startswith(place)


def test_the_results_are_one_page_with_a_sentence_for_each_claim(found):
    lines = found[pages.PAGE].splitlines()
    assert len(lines) < 120
    assert sum(line.startswith("![") for line in lines) == 1
    claims = read_claims(DOCS / CLAIMS)
    for claim in claims.claims:
        assert claim.sentence.endswith(".")
        assert ". " not in claim.sentence, claim.claim
    for note in claims.notes:
        assert f"- {note[:40]}" in found[pages.PAGE]


def test_the_figure_shows_the_tasks_of_the_table():
    drawn = pages.figure_data(DOCS)
    assert {one.contestant for one in drawn.points} == {"best known loss", *read_claims(DOCS / CLAIMS).rows}
    assert (DOCS / f"{pages.FIGURE}.svg").exists()


def test_writing_removes_pages_without_data(docs, monkeypatch):
    (docs / "results" / "old.md").write_text("old")
    (docs / "figures").mkdir()
    (docs / DATA / "fitness.json").unlink()
    monkeypatch.setattr(pages, "campaign_markdown", lambda result, *_: result.title)
    pages.main(docs)
    kept = {path.stem for path in (docs / DATA).glob("*.json")}
    assert {path.stem for path in (docs / "results").glob("*.md")} == {*kept, "evidence", "leads"}
    assert [path.name for path in (docs / "figures").iterdir()] == ["results.svg"]


def test_a_difference_is_shown_also_where_the_baseline_is_the_best_known_loss(found):
    task = read_result(DOCS / DATA / "searches.json").task("diabetes")
    assert task.best_known == task.comparison.baseline
    shown = "+0.016 (−0.008 to +0.041)"
    assert summary_table([task])[-1].endswith(f"| {shown} | {shown} |")
    assert f"| {shown} |" in found["results.md"]
    lines = list(task_lines(task))
    assert [line.count(" to mse 0.691") for line in lines] == [1, 1]  # the same loss is named once
    assert "over 10 searches;" in lines[0]


def test_a_recommended_loss_that_was_not_compared_is_named():
    """As searches try every known loss, whichever the campaign lists."""
    task = read_result(DOCS / DATA / "searches.json").task("diabetes")
    first, *others = task.searches
    advised = (first.model_copy(update={"recommended": "tukey:c=0.1"}), *others)
    head, _, *rows = (
        [cell.strip() for cell in line.split("|")]
        for line in summary_table([task.model_copy(update={"searches": advised})])
    )
    shown = {row[head.index("searched by")]: row[head.index("recommended: median, worst")] for row in rows}
    assert shown["evomal (quick)"] == "not compared: tukey:c=0.1"
    assert shown["evomal (thorough)"] == "0.691, 0.691 (0 learned)"


def test_the_worst_recommended_loss_is_compared_with_the_baseline():
    task, name = read_result(DOCS / DATA / "searches.json").task("diabetes"), "evomal (thorough)"

    def shown(task):
        head, _, *rows = ([cell.strip() for cell in line.split("|")] for line in summary_table([task]))
        return rows[-1][head.index("worst recommended, to the baseline")]

    assert shown(task) == "mse itself"
    learned, huber = task.costs(name, "tuned"), task.costs("huber", "tuned")[0]
    worst = max(range(10), key=lambda place: sum(learned[place]))
    base = task.costs("mse", "tuned")[0]
    for label, own, seeds in (("learned", learned[worst], {worst}), ("huber", huber, set(range(10)))):
        searches = tuple(
            cell.model_copy(update={"recommended": label if cell.seed in seeds else "mse"}) for cell in task.searches
        )
        changed = task.model_copy(update={"searches": searches})
        mean = sum(one - other for one, other in zip(own, base, strict=True)) / 5
        assert shown(changed).startswith(f"{label}: {mean:+.2g} (".replace("-", "−"))


def test_a_loss_file_is_no_known_loss():
    found = read_data(DOCS / DATA / "learned.json")
    noisy, unequal = found.task("digits-noise"), found.task("digits-imbalance")
    assert (noisy.contestants, noisy.best_known) == (["labels"], "gce")
    assert (unequal.contestants, unequal.best_known) == (["imbalance"], "ce+logit-adjustment")
    assert ": labels: 5.79; −3.01 (" in next(task_lines(noisy))


@pytest.mark.parametrize(
    ("data", "tasks", "expected"),
    [("paper", ["boston"], {"0.7", "1", "2", "3"}), ("searches", ["outliers", "diabetes"], {"0.05", "0.1", "1"})],
)
def test_ratios_to_the_baseline_are_plain_numbers(data, tasks, expected):
    result = read_result(DOCS / DATA / f"{data}.json")
    figure = draw_gains(gains([result.task(task) for task in tasks]))
    figure.canvas.draw()
    axis = figure.axes[0].xaxis
    assert axis.get_scale() == "log"
    labels = {label.get_text() for label in axis.get_ticklabels(which="both")}
    assert expected <= labels
    assert not any("e" in label for label in labels)


def test_one_search_is_one_search():
    task = read_result(DOCS / DATA / "searches.json").task("diabetes")
    rows = [row.model_copy(update={"losses": row.losses[:1]}) for row in task.comparison.rows]
    one = task.model_copy(update={
        "comparison": task.comparison.model_copy(update={"rows": tuple(rows)}),
        "searches": tuple(cell for cell in task.searches if cell.seed == 0),
    })  # fmt: skip
    assert "over 1 search;" in next(task_lines(one))


def test_a_foreign_file_is_refused(tmp_path):
    path = tmp_path / "x.json"
    for text in ("{}", "[", '{"format": "evomal-campaign", "version": 2}', '{"format": "evomal-table"}', "null"):
        path.write_text(text)
        with pytest.raises(InputError, match=r"x\.json"):
            read_data(path)
        with pytest.raises(InputError, match=r"x\.json"):
            read_result(path)


def test_a_table_of_a_script_is_rendered(tmp_path):
    table = MeasuredTable(
        name="t", title="A | title", about="What it is.", command="python x.py", commit="abc", hardware="one core",
        n="3 seeds", columns=("a", "b"), rows=(("x|y", "1"),), notes=("A note.",),
    )  # fmt: skip
    table.write(tmp_path / "t.json")
    assert read_data(tmp_path / "t.json") == table
    text = pages.table_markdown(table)
    assert "| x\\|y | 1 |" in text
    assert "- n: 3 seeds" in text
