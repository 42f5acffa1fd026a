"""Verdicts of comparisons, read from the files they left."""

import json

import pytest

from evomal.verdict.reading import Sentence, recorded_verdicts

VERDICTS = {
    "huber": {"kind": "gain", "sentence": "huber beats mse by 0.2 ± 0.1 over 5 seeds (5 of 5; p = 0.06)"},
    "evomal": {"kind": "no gain", "sentence": "evomal shows no gain over mse: keep mse"},
}
TEXT = "Test mse.\n\n| loss |\n|---|\n| mse |\n\n- evomal shows no gain over mse: keep mse\n- nothing else\n"


def test_sentences_come_from_the_json_and_are_not_said_twice(tmp_path):
    (tmp_path / "comparison.json").write_text(json.dumps({"verdicts": VERDICTS}))
    (tmp_path / "comparison.md").write_text(TEXT)
    found = recorded_verdicts(tmp_path)
    (verdict,) = found.verdicts
    assert (verdict.title, found.notes, found.is_begun) == ("Comparison", (), True)
    assert verdict.sentences == tuple(Sentence(entry["kind"], entry["sentence"]) for entry in VERDICTS.values())
    assert verdict.text == "Test mse.\n\n| loss |\n|---|\n| mse |\n\n- nothing else"


def test_rates_have_a_verdict_each_and_a_text_alone_is_enough(tmp_path):
    (tmp_path / "learning-rates.json").write_text(json.dumps({"lr 0.1": {"verdicts": VERDICTS}, "lr 1": {}}))
    (tmp_path / "transfer.md").write_text(TEXT)
    transfer, rates = recorded_verdicts(tmp_path).verdicts
    assert (transfer.sentences, transfer.text) == ((), TEXT.rstrip("\n"))
    assert [sentence.text[:14] for sentence in rates.sentences] == ["lr 0.1: huber ", "lr 0.1: evomal"]


def test_a_comparison_that_was_interrupted_is_told(tmp_path):
    assert recorded_verdicts(tmp_path).is_begun is False
    (tmp_path / "trainings.jsonl").write_text("")
    found = recorded_verdicts(tmp_path)
    assert (found.verdicts, found.is_begun) == ((), True)
    assert found.notes == (
        "a comparison was begun here but has not come to its end: the same command goes on with it",
    )  # fmt: skip


@pytest.mark.parametrize("content", ["{", "[" * 100_000, "\udcff", "x" * 4_000_001])
def test_a_file_that_cannot_be_read_is_a_note(tmp_path, content):
    (tmp_path / "comparison.json").write_bytes(content.encode(errors="surrogateescape"))
    (note,) = recorded_verdicts(tmp_path).notes
    assert note.startswith("comparison: cannot be read: ")


@pytest.mark.parametrize("content", [1, [], {"verdicts": 3}, {"verdicts": {"a": 1, "b": {"kind": 3}}}, {"a": {"b": 1}}])
def test_what_evomal_did_not_write_has_no_sentences(tmp_path, content):
    (tmp_path / "comparison.json").write_text(json.dumps(content))
    (verdict,) = recorded_verdicts(tmp_path).verdicts
    assert verdict.sentences == ()
