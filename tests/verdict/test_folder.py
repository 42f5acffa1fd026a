"""The files of a comparison's result: written, read again, and refused in one sentence if they are not evomal's."""

import json
import time

import pytest

from evomal.engine import Score
from evomal.errors import EvomalError, InputError
from evomal.runs.canonical import canonical, checksum
from evomal.text import markdown_to_html
from evomal.verdict.comparison import Comparison, RateCurve, Transfer, score_from_dict, score_to_dict
from evomal.verdict.folder import (
    FINAL_RECIPE,
    TrainingLog,
    comparisons_of,
    read_result,
    recorded_verdicts,
    write_result,
)
from evomal.verdict.words import Verdict
from tests.verdict.results import comparison, entry

VERDICTS = {
    "huber": ("gain", "huber beats mse by 0.2 ± 0.1 over 5 seeds (won 5 of 5; p = 0.06)"),
    "evomal": ("no gain", "evomal shows no gain over mse; keep mse"),
}
ROWS = (entry("mse", "plain", 0.1, [0.5, 0.25]), entry("evomal", "plain", 0.1, [0.5, None], None))
COMPARISON = comparison(*ROWS, verdicts=VERDICTS, words=["evomal", "compare", "x"])
RESULTS = [
    COMPARISON,
    Transfer(COMPARISON, "diabetes", {"evomal": (0.5, None)}),
    RateCurve({0.1: COMPARISON, 1e-7: comparison(verdicts=VERDICTS)}, search_each=True),
]


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_result_is_read_as_it_was_written(tmp_path, result):
    assert [path.name for path in write_result(result, tmp_path)] == [
        f"{result.file_name}.json",
        f"{result.file_name}.md",
    ]
    found = read_result(type(result), tmp_path)
    assert found.to_dict() == result.to_dict()
    assert str(found) == str(result)
    assert found.command == result.command
    for kind in {Comparison, Transfer, RateCurve} - {type(result)}:
        assert read_result(kind, tmp_path) is None


def test_without_a_divergence_it_is_equal(tmp_path):
    whole = RateCurve({0.1: comparison(verdicts=VERDICTS)}, search_each=False)
    write_result(whole, tmp_path)
    assert read_result(RateCurve, tmp_path) == whole


def test_verdicts_are_shown_once_beside_the_table(tmp_path):
    write_result(COMPARISON, tmp_path)
    (verdict,) = (found := recorded_verdicts(tmp_path)).verdicts
    assert (verdict.title, found.notes, found.is_begun) == ("Comparison", (), True)
    assert verdict.sentences == tuple(Verdict(*one) for one in VERDICTS.values())
    assert "| mse | 0.1 | 0.375 ± 0.18 |" in verdict.text
    assert "evomal, plain, search 1: the search found no loss that passed its filters" in verdict.text
    assert not any(sentence in verdict.text for _, sentence in VERDICTS.values())
    assert all(sentence in (tmp_path / "comparison.md").read_text() for _, sentence in VERDICTS.values())


def test_learning_rates_have_a_verdict_each(tmp_path):
    for result in RESULTS[1:]:
        write_result(result, tmp_path)
    transfer, rates = recorded_verdicts(tmp_path).verdicts
    assert (transfer.title, rates.title) == ("Transfer", "Comparison at several learning rates")
    assert [found.sentence[:14] for found in rates.sentences[:2]] == ["lr 0.1: huber ", "lr 0.1: evomal"]
    assert list(comparisons_of(rates.result)) == ["lr 0.1", "lr 1e-07"]
    assert rates.text.startswith("## lr 0.1\n\nTest mse")


def test_a_comparison_that_was_interrupted_is_said_to_be_one(tmp_path):
    assert recorded_verdicts(tmp_path).is_begun is False
    (tmp_path / "trainings.jsonl").write_text("")
    found = recorded_verdicts(tmp_path)
    assert (found.verdicts, found.is_begun) == ((), True)
    assert found.notes == (
        "a comparison was begun here but is not complete: give the same command again to resume it",
    )  # fmt: skip


WHOLE = COMPARISON.to_dict()


@pytest.mark.parametrize(
    "content",
    [
        "{", "[" * 100_000, b"\xff", "1", "[]", '{"verdicts": {}}', json.dumps({**WHOLE, "version": 2}),
        json.dumps({**WHOLE, "format": "evomal-loss"}), json.dumps({**WHOLE, "entries": 3}),
        json.dumps({**WHOLE, "verdicts": {"a": {"kind": "magic", "sentence": "x"}}}),
        json.dumps({**WHOLE, "entries": [{**WHOLE["entries"][0], "losses": [{"formula": "x"}]}]}),
        json.dumps({**WHOLE, "seeds": []}), json.dumps({**WHOLE, "tune_lr": 2}),
        json.dumps({**WHOLE, "steps": 10**30}), json.dumps({**WHOLE, "rates": ["0.1"]}),
        json.dumps({**WHOLE, "rates": [0.1]}).replace("0.1]", "1e999]"), json.dumps({**WHOLE, "task": "x" * 1_001}),
        json.dumps({**WHOLE, "entries": 1_001 * [WHOLE["entries"][0]]}),
        json.dumps({**WHOLE, "entries": [{**WHOLE["entries"][0], "losses": 1_001 * [None]}]}),
        json.dumps({**WHOLE, "verdicts": {str(n): {"kind": "gain", "sentence": "x"} for n in range(1_001)}}),
    ],
)  # fmt: skip
def test_what_evomal_did_not_write_is_a_note(tmp_path, content):
    path = tmp_path / "comparison.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (note,) = (found := recorded_verdicts(tmp_path)).notes
    assert note.startswith(str(tmp_path))
    assert "\n" not in note
    assert len(note) < 400 + len(str(path))
    assert (found.verdicts, found.is_begun) == ((), True)


SCORE = WHOLE["entries"][0]["losses"][0]["scores"][0]


@pytest.mark.parametrize(
    "change",
    [
        {"test": "0.5"}, {"test": True}, {"test": [0.5]}, {"metrics": []}, {"metrics": {"mse": "x"}}, {"curve": 3},
        {"curve": [[1, 2.0]]}, {"curve": [["a", None, None]]}, {"seed": 1.5}, {"seed": 2**63}, {"steps": None},
        {"outcome": "won"}, {"sentence": 7}, {"milestones": "12"}, {"milestones": [[]]}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_score_that_evomal_does_not_write_is_refused(tmp_path, change):
    with pytest.raises(InputError, match="a recorded score is not what evomal writes: "):
        score_from_dict({**SCORE, **change})
    for content in ({**SCORE, **change}, 7, None, []):
        _written_log(tmp_path, {"comparison": {}}, {"trainings": [{"training": {}, "score": content}]})
        with pytest.raises(InputError, match="is not what evomal writes, although its checksums match"):
            TrainingLog(tmp_path, {})


@pytest.mark.parametrize(
    "lines",
    [
        [{}], [{"comparison": []}], [{"comparison": 3}], [{"comparison": {}}, {}],
        [{"comparison": {}}, {"trainings": 3}], [{"comparison": {}}, {"trainings": [3]}],
        [{"comparison": {}}, {"trainings": [{"training": [], "score": SCORE}]}],
    ],
    ids=str,
)  # fmt: skip
def test_a_log_that_evomal_does_not_write_is_refused(tmp_path, lines):
    _written_log(tmp_path, *lines)
    with pytest.raises(InputError, match="is not what evomal writes, although its checksums match"):
        TrainingLog(tmp_path, {})


def _written_log(folder, *lines):
    """A log with right checksums."""
    text = "".join(f"{canonical([checksum(line), line])}\n" for line in lines)
    (folder / "trainings.jsonl").write_text(text)


def test_a_log_that_evomal_wrote_is_read(tmp_path):
    _written_log(tmp_path, {"comparison": {"a": 1}}, {"trainings": [{"training": {"k": 1}, "score": SCORE}]})
    with TrainingLog(tmp_path, {"a": 1}) as log:
        assert score_to_dict(log[{"k": 1}]) == SCORE


def test_a_log_does_not_grow_beyond_what_can_be_read(tmp_path, monkeypatch):
    with TrainingLog(tmp_path, {}) as log:
        monkeypatch.setattr("evomal.verdict.folder._LONGEST_LOG", (tmp_path / "trainings.jsonl").stat().st_size)
        with pytest.raises(EvomalError, match=r"trainings\.jsonl: a log has at most \d+ bytes, and this one is full"):
            log.add([{"k": 1}], [score_from_dict(SCORE)])
    with TrainingLog(tmp_path, {}) as log:
        assert {"k": 1} not in log


def test_the_largest_comparison_is_read_and_shown_in_part(tmp_path):
    """Names that take long to render as Markdown, as many as there may be."""
    rows = [entry("|*" * 500, "plain", 0.1, [0.5]) for _ in range(1_000)]
    sentences = {str(number): ("gain", "`*" * 10_000) for number in range(1_000)}
    result = comparison(*rows, verdicts=sentences)
    (tmp_path / "comparison.json").write_text(json.dumps(result.to_dict()))
    rates = RateCurve({float(rate): comparison(verdicts=VERDICTS) for rate in range(1, 1_001)}, search_each=False)
    (tmp_path / "learning-rates.json").write_text(json.dumps(rates.to_dict()))
    began = time.process_time()
    found = recorded_verdicts(tmp_path)
    assert found.notes == ()
    assert [len(verdict.sentences) for verdict in found.verdicts] == [1_000, 1_000]
    for verdict in found.verdicts:
        assert 90_000 < len(verdict.text) < 101_000
        assert verdict.text.endswith(f"\n\n… and more: see {verdict.result.file_name}.md\n")
        assert len(markdown_to_html(verdict.text)) < 1_000_000
    assert time.process_time() - began < 30


def test_a_file_of_an_older_version_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "comparison.json").write_text(json.dumps({"task": "own", "rows": [], "verdicts": {}}))
    sentence = "is not a document of the format evomal-comparison, which evomal writes since version 0.2"
    with pytest.raises(InputError, match=f"comparison.json: {sentence}$"):
        read_result(Comparison, tmp_path)


def test_metrics_are_written_in_the_order_of_the_log():
    """A resumed comparison reads them from there, and writes the same bytes as an uninterrupted one."""
    score = Score(0.5, 0.5, {"mse": 0.5, "mae": 0.25}, [], 0, 30)
    again = score_from_dict(json.loads(canonical(score_to_dict(score))))
    assert json.dumps(score_to_dict(again)) == json.dumps(score_to_dict(score))


def test_a_log_of_before_recipes_were_described_is_continued(tmp_path):
    described = {"a": 1, FINAL_RECIPE: {"momentum": 0.9}}
    for name, begun in (("old", {"a": 1}), ("new", described)):
        with TrainingLog(tmp_path / name, begun) as log:
            log.add([{"k": 1}], [score_from_dict(SCORE)])
        with TrainingLog(tmp_path / name, described) as log:
            assert {"k": 1} in log
    with pytest.raises(InputError, match=r"final_recipe\.momentum was 0\.9"):
        TrainingLog(tmp_path / "new", {"a": 1, FINAL_RECIPE: {"momentum": 0.5}})


def test_a_log_without_trainings_becomes_that_of_another_comparison(tmp_path):
    with TrainingLog(tmp_path, {"a": 1}):
        pass
    with TrainingLog(tmp_path, {"a": 2}) as log:
        log.add([{"k": 1}], [score_from_dict(SCORE)])
    with pytest.raises(InputError, match="belongs to another comparison: a was 2 but is 1"):
        TrainingLog(tmp_path, {"a": 1})
