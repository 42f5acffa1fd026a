"""Rate curves: what a comparison at each rate recorded, read back; divergence counted and never averaged."""

import json
import math

import pytest

from evomal.errors import InputError
from evomal.figures.learning_rate import rate_curves, recorded_rate_curves
from evomal.verdict.comparing import rate_curve
from evomal.verdict.comparison import RateCurve
from evomal.verdict.folder import write_result
from tests.engine.populations import regression
from tests.verdict.results import comparison, entry


def at(lr, base, *learned, **changes):
    rows = (
        entry("mine", "plain", lr, *learned),
        entry("mine", "rescaled", lr, [9.0, 9.0]),
        entry("mse", "plain", lr, base),
    )
    return comparison(*rows, search_seeds=tuple(range(len(learned))), **changes)


def record(**changes):
    comparisons = {
        0.1: at(0.1, [1.0, 3.0], [2.0, 2.0], [4.0, 6.0], None, **changes),
        0.01: at(0.01, [5.0, 5.0], [1.0, None], [None, None], [3.0, 5.0], **changes),
        1.0: at(1.0, [None, None], None, None, None, **changes),
    }
    return RateCurve(comparisons, search_each=False)


RECORD = record()


def recorded(tmp_path, content):
    write_result(content, tmp_path)
    return recorded_rate_curves(tmp_path)


def test_a_record_is_read_with_known_means(tmp_path):
    found = recorded(tmp_path, RECORD)
    assert list(found.lines) == ["mse", "mine"]
    base, mine = found.lines.values()
    assert [point.rate for point in base] == [point.rate for point in mine] == [0.01, 0.1, 1.0]
    assert [point.mean for point in base[:2]] == [5.0, 2.0]
    assert base[1].deviation == pytest.approx(math.sqrt(2))
    assert (base[2].values, base[2].diverged) == ([], 2)
    # Of searches each counts by its mean: 1 of one seed, and 4 of two.
    assert (mine[0].values, mine[0].diverged, mine[0].mean) == ([1.0, 4.0], 3, 2.5)
    assert (mine[1].values, mine[1].mean) == ([2.0, 5.0], 3.5)
    assert math.isnan(mine[2].mean)
    assert found.first == RECORD.comparisons[0.01]
    assert found.sentences == [
        "mse at 1: 2 of 2 trainings diverged",
        "mine at 0.01: 3 of 6 trainings diverged",
        "mine at 1: the search found no loss that passed its filters",
    ]


def test_the_best_rate_is_one_at_which_nothing_diverged(tmp_path):
    found = recorded(tmp_path, RECORD)
    assert [found.best(line).rate for line in found.lines] == [0.1, 0.1]
    turned = record(higher_is_better=True)
    assert recorded(tmp_path, turned).best("mse").rate == 0.01
    nowhere = recorded(tmp_path, RateCurve({1.0: RECORD.comparisons[1.0]}, search_each=False))
    assert [nowhere.best(line) for line in nowhere.lines] == [None, None]


def test_columns_have_a_row_for_each_training(tmp_path):
    columns = recorded(tmp_path, RECORD).columns()
    assert {len(column) for column in columns.values()} == {6 + 6 + 4}
    assert columns["loss"] == ["mse"] * 6 + ["mine"] * 10
    assert columns["search"][6:12] == [0, 0, 1, 1, 2, 2]
    assert columns["outcome"].count("diverged") == 2 + 3
    assert columns["test"][:2] == [5.0, 5.0]


def test_what_is_computed_now_is_what_would_be_recorded():
    curve = rate_curve(
        regression(), rates=[0.05, 1e6, 0.01], losses=["mae"], seeds=2, device="cpu", final_steps=20
    )  # fmt: skip
    found = rate_curves(curve)
    assert list(found.lines) == ["mse", "mae"]
    for name, points in found.lines.items():
        assert [point.rate for point in points] == [0.01, 0.05, 1e6]
        for point in points[:2]:
            (trained,) = curve.comparisons[point.rate].entry(name).losses
            assert point.values == [score.test for score in trained.scores]
    assert found.lines["mse"][2].diverged == 2
    assert found.sentences[0] == "mse at 1e+06: 2 of 2 trainings diverged"


def test_an_unfinished_comparison_is_said_to_be_one(tmp_path):
    (tmp_path / "lr-0.1").mkdir()
    found = recorded_rate_curves(tmp_path)
    assert found.lines == {}
    expected = f"{tmp_path}: the comparison is not complete: give the same evomal compare command again to resume it"
    assert found.sentences == [expected]


def test_bad_folders_and_files(tmp_path):
    with pytest.raises(InputError) as refusal:
        recorded_rate_curves(tmp_path / "none")
    assert str(refusal.value) == f"{tmp_path / 'none'}: there is no such folder"
    with pytest.raises(InputError) as refusal:
        recorded_rate_curves(tmp_path)
    assert str(refusal.value).endswith(
        ": is not a folder of evomal compare --rates: there is no learning-rates.json in it"
    )
    whole = RECORD.to_dict()
    for content in ("", {}, [], "nonsense", {"a": 1}, {**whole, "comparisons": {}}, {**whole, "comparisons": {"x": 1}}):
        (tmp_path / "learning-rates.json").write_text(json.dumps(content))
        with pytest.raises(InputError) as refusal:
            recorded_rate_curves(tmp_path)
        assert "\n" not in str(refusal.value)
