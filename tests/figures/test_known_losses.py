"""The known losses before a search: the data and the drawing."""

import pytest

from evomal.figures.known_losses import NOT_MEASURED, draw_headroom, run_headroom
from evomal.runs.reading import read_runs
from evomal.runs.rows import RecordedTrial
from evomal.runs.store import RunStore
from tests.figures.records import record, row, settings


def measured(folder):
    """A record with two losses on two rungs, at two learning rates, with two seeds."""
    trials = [
        RecordedTrial(
            stage="rivals", loss=loss, seed=seed, score=score * rate + seed / slope, sentence="trained", rate=rate,
            steps=steps,
        )
        for loss, score, slope in (("mse", 0.5, 5), ("huber", 0.4, 10))
        for steps in (10, 20)
        for rate in (1.0, 2.0)
        for seed in (0, 1)
    ]  # fmt: skip
    with RunStore.create(folder, settings()) as store:
        store.write_trials(trials)
        store.write_chunk(0, [row(0, 0, 1.0)])
        store.finish("done")
    return folder


def test_the_best_learning_rate_on_the_longest_rung_counts(tmp_path):
    data = run_headroom(read_runs([measured(tmp_path)]))
    assert data.columns()["loss"] == ["mse", "mse", "huber", "huber"]
    assert data.columns()["value"] == [0.5, 0.7, 0.4, 0.5]
    assert set(data.columns()["steps"]) == {20}
    figure = draw_headroom(data)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["mse", "huber"]
    assert axes.get_xlabel() == "validation mse"
    (band,) = axes.patches
    assert band.get_width() == pytest.approx(2 * data.headroom.noise)


def test_without_learning_rates_a_sentence_says_so(tmp_path):
    data = run_headroom(read_runs([record(tmp_path, [row(0, 0, 1.0)], rivals={"mse": 1.0})]))
    assert data.headroom is None
    assert data.columns()["loss"] == []
    assert draw_headroom(data).texts[0].get_text().replace("\n", " ") == NOT_MEASURED
