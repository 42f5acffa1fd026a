"""The cards of the zoo show what campaigns measured."""

from pathlib import Path

import pytest

import evomal
from evomal import zoo
from evomal.campaigns.pages import DATA, read_data
from evomal.campaigns.record import CampaignResult
from evomal.campaigns.zoo_cards import zoo_cards
from evomal.errors import InputError
from evomal.zoo import entries

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = {
    path.stem: result
    for path in sorted((DOCS / DATA).glob("*.json"))
    if isinstance(result := read_data(path), CampaignResult)
}


def test_the_committed_cards_are_what_the_data_render_to():
    assert zoo_cards(RESULTS) == {name: zoo.zoo_card(f"zoo:{name}") for name in zoo.zoo_names()}, "run `make results`"


def test_a_card_has_one_row_for_each_task_of_each_campaign():
    (card,) = zoo_cards({"noise": RESULTS["noise"]}).values()
    rows = [line for line in card.splitlines() if line.startswith("| MNIST")]
    assert len(rows) == 3
    assert rows[0].startswith("| MNIST, 40 % wrong labels: error rate (%); learned there | ce 7.86 | sce 5.14 | 4.35 |")
    assert "learned there" not in rows[1] + rows[2]


def test_a_card_has_no_tasks_whose_learning_rates_were_not_tuned():
    def untuned(task):
        if task.name != "mnist-60":
            return task
        rows = tuple(row for row in task.comparison.rows if row.variant == "plain")
        return task.model_copy(update={"comparison": task.comparison.model_copy(update={"rows": rows, "tune_lr": 0})})

    noise = RESULTS["noise"]
    (card,) = zoo_cards({"noise": noise.model_copy(update={"tasks": tuple(map(untuned, noise.tasks))})}).values()
    assert len([line for line in card.splitlines() if line.startswith("| MNIST")]) == 2
    assert "MNIST, 60 %" not in card.split("## Measured")[1]


@pytest.mark.parametrize(("is_measured", "has_section"), [(False, True), (True, False)])
def test_a_card_needs_a_section_and_a_measured_loss(tmp_path, monkeypatch, is_measured, has_section):
    loss = evomal.load_loss("zoo:noisy-digits") if is_measured else evomal.ExpressionLoss("abs(sub(y, f))")
    evomal.save_loss(loss, tmp_path / "other.json")
    (tmp_path / "other.md").write_text("# other\n\n## Measured\n" if has_section else "# other\n")
    monkeypatch.setattr(entries, "FOLDER", tmp_path)
    with pytest.raises(InputError, match="the card of other must have a section '## Measured' and a measured loss"):
        zoo_cards(RESULTS)
