"""The public figures: of results, runs and folders, and of losses; what they draw is tested figure by figure."""

import matplotlib.figure
import pytest

import evomal
from evomal.errors import InputError
from evomal.losses import ExpressionLoss, FocalLoss, save_loss
from tests.figures.records import record, row

OF_SEARCHES = ("curves", "filters", "runtime")
OF_ONE_SEARCH = ("front", "rungs", "headroom", "ancestry")


@pytest.fixture
def folders(tmp_path):
    rows = [row(0, 0, 0.5, evaluate=1.0), row(0, 1, evaluate=1.0), row(1, 0, 0.25, evaluate=1.0)]
    return [record(tmp_path / name, rows, seed=seed) for seed, name in enumerate(("a", "b"))]


@pytest.mark.parametrize("name", OF_SEARCHES + OF_ONE_SEARCH)
def test_every_figure_of_a_search(name, folders):
    draw, run = getattr(evomal.plot, name), evomal.load_run(folders[0])
    result = evomal.SearchResult(None, run.history, (), "done", None, 1.0, run=run)
    texts = []
    for given in (result, run, folders[0], str(folders[0])):
        figure = draw(given)
        assert isinstance(figure, matplotlib.figure.Figure)
        texts.append([text.get_text() for text in figure.findobj(matplotlib.text.Text)])
    assert texts[0] == texts[1] == texts[2] == texts[3]
    assert any(texts[0])


@pytest.mark.parametrize("name", OF_SEARCHES)
def test_figures_of_several_searches(name, folders):
    draw = getattr(evomal.plot, name)
    of_both = [text.get_text() for text in draw(*folders).findobj(matplotlib.text.Text)]
    assert of_both == [text.get_text() for text in draw(folders[0].parent).findobj(matplotlib.text.Text)]


def test_the_lines_are_those_of_the_search(folders):
    axes = evomal.plot.curves(folders[0]).axes[0]
    assert [0.5, 0.25] in [list(line.get_ydata()) for line in axes.get_lines()]


def test_losses_are_drawn_by_name_file_and_themselves(tmp_path):
    save_loss(FocalLoss(3.0), tmp_path / "mine.json")
    loss = ExpressionLoss("abs(log(mul(y, f)))")
    figure = evomal.plot.shapes("ce", "focal:gamma=1", tmp_path / "mine.json", loss)
    assert len(figure.axes) == 4 * 4


def test_every_public_figure_is_tested():
    assert {*OF_SEARCHES, *OF_ONE_SEARCH, "shapes"} == {*evomal.plot.__all__}


@pytest.mark.parametrize(
    ("draw", "sentence"),
    [
        (lambda: evomal.plot.curves(), "at least one search must be given"),
        (lambda: evomal.plot.curves(3), "a search must be a result, a run or a folder but got 3"),
        (lambda: evomal.plot.curves("nowhere"), "nowhere: is not a folder"),
        (lambda: evomal.plot.shapes(), "at least one loss must be given but got none"),
        (lambda: evomal.plot.shapes("ce", "ce"), "losses must have different names but 'ce' is given twice"),
        (lambda: evomal.plot.shapes("hinge"), "there is no loss or loss file named 'hinge'"),
    ],
)
def test_what_is_refused(draw, sentence):
    with pytest.raises(InputError, match=sentence):
        draw()


def test_a_folder_without_runs_and_several_runs_for_one_are_refused(tmp_path, folders):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="the given folders hold no run"):
        evomal.plot.curves(tmp_path / "empty")
    with pytest.raises(InputError, match="one run was expected but got 2"):
        evomal.plot.front(folders[0].parent)
