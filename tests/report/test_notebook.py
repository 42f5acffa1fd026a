"""Losses and results show themselves in notebooks."""

import re
import subprocess
import sys

import pytest
import torch

import evomal
from evomal.losses import CATALOGUE, ExpressionLoss, FocalLoss
from evomal.losses.loss import Loss
from evomal.report import notebook
from evomal.report.notebook import comparison_html, loss_html, result_html
from tests.protocols import ONE_TRAINING
from tests.report.cards import HOSTILE, Tags
from tests.report.reports import IN_REPORTS

SHORT = {
    **ONE_TRAINING,
    "population": 6,
    "generations": 2,
    "meta_steps": 5,
    "training_steps": 30,
    "filter_steps": 20,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def task():
    return evomal.load_task("diabetes", model="mlp:hidden=8")


@pytest.fixture(scope="module")
def result(task):
    return evomal.search(task, seed=1, **SHORT)


def shown(thing):
    """As a notebook asks, which knows nothing but the name of the method."""
    return thing._repr_html_()


def test_a_loss_shows_its_formula_and_shape():
    page = Tags(shown(ExpressionLoss("abs(log(mul(y, f)))", [2.0, 1.0, 1.0, 1.1])))
    assert "ExpressionLoss for classification" in page.text
    assert "2*Abs(log(1.1*Abs(f*y)))" in page.text
    assert (page.count("math"), page.count("svg")) == (1, 1)
    assert {tag for tag, _ in page.elements} <= IN_REPORTS | {"b"}


def test_a_loss_with_units_shows_them():
    loss = ExpressionLoss("abs(sub(f, y))", kind="regression").in_units(evomal.Units((1.0, 2.0), (3.0, 4.5)))
    assert "learned in standardised units: mean (1, 2), scale (3, 4.5)" in Tags(shown(loss)).text


def test_names_inside_the_figures_of_two_losses_differ():
    pages = [shown(FocalLoss(gamma=gamma)) for gamma in (1.0, 2.0)]
    first, second = (set(re.findall(r' id="([^"]*)"', page)) for page in pages)
    assert first
    assert second
    assert not first & second


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_loss_that_has_a_name_can_be_shown(name, monkeypatch):
    monkeypatch.setattr("evomal.figures.style.inline_svg", lambda *_: "<svg></svg>")  # drawing takes longest
    assert CATALOGUE[name].definition in Tags(loss_html(CATALOGUE[name]())).text


def test_a_result_shows_what_was_found(result):
    page = Tags(shown(result))
    assert "2 generations: all 2 generations are done" in page.text
    assert f"candidates: {', '.join(f'{n} {state}' for state, n in result.counts.items())}" in page.text
    best = result.best
    assert f"value {best.value:.4g}, found in generation {best.generation + 1}" in page.text
    assert best.formula() in page.text
    assert best.formula() in Tags(shown(best)).text


def test_a_result_without_a_loss_says_so(result):
    from dataclasses import replace

    assert "nothing survived" in result_html(replace(result, best=None))


def test_a_comparison_shows_its_verdict_before_its_table(task):
    comparison = evomal.compare(task, losses=["huber"], seeds=2, final_steps=20, device="cpu")
    page = shown(comparison)
    assert page == comparison_html(comparison)
    sentence = comparison.verdicts["huber"].sentence
    assert Tags(page).text.count(sentence) == 1
    assert page.index(sentence) < page.index("<table>")


class _Odd(Loss):
    def of_classes(self, logits, target, weight):
        raise RuntimeError("not today")

    of_probabilities = of_bits = of_classes


def test_what_cannot_be_shown_is_shown_as_text():
    assert shown(_Odd()) is None
    assert repr(_Odd()) == "_Odd(kind='classification', reduction='mean')"


def test_texts_are_escaped(result):
    from dataclasses import replace

    assert {tag for tag, _ in Tags(result_html(replace(result, ending=HOSTILE, best=None))).elements} == {"p", "br"}


def test_importing_evomal_imports_nothing_that_draws():
    code = "import sys, evomal; print([name for name in ('matplotlib', 'markdown_it') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_display_of_jupyter_finds_the_page():
    formatters = pytest.importorskip("IPython.core.formatters")
    data, _ = formatters.DisplayFormatter().format(FocalLoss(gamma=2.0))
    assert data["text/html"] == loss_html(FocalLoss(gamma=2.0))
    assert data["text/plain"].startswith("FocalLoss(")


def test_showing_a_loss_leaves_random_numbers_alone():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    notebook.loss_html(FocalLoss())
    assert torch.equal(before, torch.random.get_rng_state())
