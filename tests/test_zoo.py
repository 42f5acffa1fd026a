"""The zoo: losses by name, with cards whose numbers are those of campaigns."""

import json

import pytest

import evomal
from evomal import zoo
from evomal.errors import InputError
from evomal.verdict.contestants import given_contestants
from evomal.zoo import entries
from tests.cli.test_app import run  # noqa: F401  (a fixture)


@pytest.fixture
def robust(tmp_path, monkeypatch):
    """A zoo with one loss."""
    loss = evomal.ExpressionLoss("abs(tanh(sub(y, f)))", kind="regression")
    evomal.save_loss(loss, tmp_path / "robust.json", provenance={"task": "planted outliers"})
    (tmp_path / "robust.md").write_text("# robust\n")
    monkeypatch.setattr(entries, "FOLDER", tmp_path)


def test_every_loss_of_the_zoo_is_read_and_has_a_card():
    for name in zoo.zoo_names():
        assert evomal.load_loss(f"zoo:{name}").provenance["task"]
        card = zoo.zoo_card(f"zoo:{name}")
        assert card.startswith(f"# {name}\n")
        assert {"## Measured", "## Not measured"} <= set(card.splitlines())
    files = {path.stem for path in entries.FOLDER.glob("*.md")}
    assert files == set(zoo.zoo_names())


def test_every_loss_of_the_zoo_leads_the_best_known_loss_on_two_tasks_besides_its_own():
    for name in zoo.zoo_names():
        table = [line for line in zoo.zoo_card(f"zoo:{name}").splitlines() if line.startswith("|")]
        assert sum(", better |" in line and "learned there" not in line for line in table) >= 2
        assert sum("learned there" in line for line in table) >= 1


def test_a_loss_is_loaded_by_its_name(robust, run):  # noqa: F811
    assert str(evomal.load_loss("zoo:robust").expression) == "abs(tanh(sub(y, f)))"
    assert zoo.zoo_card("zoo:robust") == "# robust\n"
    task = evomal.load_task("diabetes", model="mlp:hidden=4")
    assert [one.name for one in given_contestants(["huber", "zoo:robust"], task)] == ["huber", "zoo:robust"]
    code, out, _ = run("losses", "--json")
    assert code == 0
    assert json.loads(out)[-1]["name"] == "zoo:robust"
    code, out, _ = run("export", "zoo:robust", "--to", "latex")
    assert code == 0


def test_the_card_of_a_loss_shows_what_was_measured(tmp_path, run):  # noqa: F811
    code, out, _ = run("card", "zoo:noisy-digits", "--out", tmp_path)
    assert code == 0
    assert "on both tables that were tried it has more errors than known losses" in " ".join(out.split())
    text = (tmp_path / "zoo_noisy-digits-card.md").read_text()
    assert "| MNIST, 60 % wrong labels: error rate (%) | ce 12.19 |" in text
    assert "to another task: evomal transfer --loss zoo:noisy-digits --to TASK" in text
    assert "not transferred yet" not in out
    assert "<th>this loss</th>" in (tmp_path / "zoo_noisy-digits-card.html").read_text()


@pytest.mark.parametrize("name", ["zoo:robst", "zoo:../robust", "zoo:"])
def test_another_name_is_refused(robust, name):
    with pytest.raises(InputError, match="there is no loss in the zoo named"):
        evomal.load_loss(name)
