"""What a report says of whole runs, and of runs with something missing."""

from dataclasses import replace

import pytest

from evomal.errors import InputError
from evomal.figures.ancestry import ancestry
from evomal.losses import ExpressionLoss, save_loss
from evomal.report.report_page import best_shapes, charts_of_run, figures_of_runs, report_page
from evomal.report.run_report import run_report
from evomal.runs import RunStore
from evomal.units import Units
from evomal.verdict.folder import write_result
from tests.figures.records import row
from tests.report.reports import ABSOLUTE, ROWS, SQUARE, written_run
from tests.verdict.results import comparison

FIGURES_OF_A_RUN = ["Shape", "Gradient", "Search", "Filters", "Size against fitness", "Time by stage", "Ancestry"]


def figures_of(report):
    return [*best_shapes(report), *charts_of_run(report), *figures_of_runs(report)]


def test_one_run_is_told_with_its_best_loss(tmp_path):
    report = run_report(written_run(tmp_path / "a"))
    assert report.title == "planted, linear: evomal"
    assert report.subject.startswith("One search, seed 0, started 20")
    assert report.subject.endswith(" UTC; complete: all generations are done.")
    assert report.warnings == ()
    (formula,) = report.formulas
    assert (formula.text, formula.written, formula.symbols) == ("Abs(f - y)", ABSOLUTE, "f: output, y: target")
    assert formula.sentence == (
        "Validation mse 0.25 (one training), size 4, found in generation 2 by mutation (evomal, seed 0)."
    )
    assert [shown.title for shown in figures_of(report)] == FIGURES_OF_A_RUN


def test_the_units_of_the_task_are_named(tmp_path):
    folder = written_run(tmp_path / "a")
    save_loss(ExpressionLoss(ABSOLUTE, kind="regression").in_units(Units(152.1, 77.0)), folder / "best.json")
    (formula,) = run_report(folder).formulas
    assert formula.symbols == "f: output, y: target, learned in standardised units: mean 152.1, scale 77"
    assert "error f − y (standardised)" in best_shapes(run_report(folder))[0].svg


def test_the_best_loss_is_the_final_s_winner_and_its_rivals_stand_beside_it(tmp_path):
    rivals = {"mse": 0.5, "mae": float("inf")}
    (formula,) = run_report(written_run(tmp_path / "a", rivals=rivals)).formulas
    assert formula.text == "Abs(f - y)"
    assert formula.sentence.endswith(" Rivals: mse 0.5, mae diverged (one training each).")
    final = {"mse": (0.6, 0.7), "mae": (0.9, 0.9), "0:0": (0.5, 0.75), "1:1": (0.8, 0.8)}
    report = run_report(written_run(tmp_path / "b", rivals=rivals, final=final))
    (formula,) = report.formulas
    assert formula.written == SQUARE
    assert formula.sentence == (
        "Validation mse 0.625 (mean of 2 fresh seeds; 0.5 in the search), size 4, found in generation 1 by initial "
        "(evomal, seed 0). Rivals: mse 0.65, mae 0.9 (the same seeds). Final: no lead over mse."
    )
    assert "mean in the final" in report_page(report)
    assert ancestry(report.runs).ancestors[-1].candidate.genome == SQUARE


def test_settings_are_marked_where_they_are_not_the_preset_s(tmp_path):
    report = run_report(written_run(tmp_path / "a"))
    assert report.settings.sentence() == "Preset quick; * marks settings that differ from it."
    entries = dict(report.settings.entries())
    assert (entries["population *"], entries["threads *"], entries["generations"]) == ("2", "1", "8")
    assert entries["filters"] == "symbolic, admissible, dead, rejection, gradient"
    assert ("hardships", "label_noise 0") in report.settings.task_entries()
    environment = dict(report.settings.environment_entries())
    assert (environment["device"], environment["threads"], environment["torch"]) == ("cpu", "1", "2.13.0")


def test_commands_repeat_the_run_and_have_its_loss_judged(tmp_path):
    report = run_report(written_run(tmp_path / "a"))
    assert report.commands[0].text == (
        f"evomal search diabetes --model mlp:hidden=8 --set population=2 --out {tmp_path / 'a-again'}"
    )
    assert report.compare_command() == (
        f"evomal compare diabetes --model mlp:hidden=8 --losses {tmp_path / 'a' / 'best.json'} "
        f"--losses strong --tune-lr 5 --out {tmp_path / 'a'}"
    )


def test_several_runs_are_told_together(tmp_path):
    written_run(tmp_path / "a")
    written_run(tmp_path / "b", seed=1)
    written_run(tmp_path / "c", ROWS[:2], method="random", complete=False)
    report = run_report(tmp_path)
    assert (report.title, report.subject) == (
        "planted, linear: evomal, random",
        "3 searches: 2 complete, 1 interrupted.",
    )
    assert report.run is None
    assert report.compare_command() is None
    assert [shown.title for shown in figures_of(report)] == ["Shape", "Gradient", "Search", "Filters", "Run time"]
    assert [row[:1] + row[2:] for row in report.run_rows()] == [
        ("a", "evomal", "0", "complete", "2", "2", "mse 0.25"),
        ("b", "evomal", "1", "complete", "2", "2", "mse 0.25"),
        ("c", "random", "0", "interrupted", "1", "1", "mse 0.5"),
    ]
    assert report.warnings == (
        f"The search random, seed 0 was interrupted: it has recorded 1 of 8 generations; "
        f"evomal resume {tmp_path / 'c'} resumes it.",
        "The search random, seed 0 has only one generation, so no candidate has parents.",
    )


def test_the_best_value_of_a_run_is_of_its_longest_rung(tmp_path):
    short = replace(row(0, 0, 0.1, genome=SQUARE, weights=(1.0, 1.0, 1.0)), rungs=((1.0, 0.1),))
    long = replace(row(0, 1, 0.3, genome=ABSOLUTE, weights=(1.0, 1.0, 1.0)), rungs=((1.0, 0.2), (1.0, 0.3)))
    for name in ("a", "b"):
        written_run(tmp_path / name, [short, long])
    assert [cells[-1] for cells in run_report(tmp_path).run_rows()] == ["mse 0.3", "mse 0.3"]


def test_the_formula_of_the_best_loss_has_the_factor_with_which_it_was_trained_and_saved(tmp_path):
    trained = replace(row(0, 0, 0.1, genome=ABSOLUTE, weights=(1.0, 1.0, 1.0)), factor=2.0)
    written_run(tmp_path / "a", [trained])
    save_loss(ExpressionLoss(ABSOLUTE, kind="regression"), tmp_path / "a" / "best.json")  # tells the kind of task
    (formula,) = run_report(tmp_path / "a").formulas
    assert formula.text == "2*Abs(f - y)"


@pytest.mark.parametrize(
    ("rows", "complete", "sentences"),
    [
        (ROWS[:2], True, ["has only one generation, so no candidate has parents."]),
        (ROWS, False, ["was interrupted: it has recorded 2 of 8 generations; evomal resume {folder} resumes it."]),
        (
            [row(0, 0), row(0, 1), row(0, 2, state="dead gradient")], True,
            ["did not train any loss: no candidate passed the filters (2 rejected, 1 dead gradient)."],
        ),
        (
            [], False,
            [
                "was interrupted: it has recorded 0 of 8 generations; evomal resume {folder} resumes it.",
                "has not recorded any candidate yet.",
            ],
        ),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(tmp_path, rows, complete, sentences):
    report = run_report(written_run(tmp_path / "a", rows, complete=complete))
    assert list(report.warnings) == [f"This search {text.format(folder=tmp_path / 'a')}" for text in sentences]
    assert bool(report.formulas) == any(candidate.state == "evaluated" for candidate in rows)
    titles = [shown.title for shown in figures_of(report)]
    assert titles == [title for title in FIGURES_OF_A_RUN if title in titles]
    assert ("Filters" in titles, "Shape" in titles, "Size against fitness" in titles) == (
        bool(rows), bool(report.formulas), bool(report.formulas),
    )  # fmt: skip


def test_failures_are_told_the_most_frequent_first(tmp_path):
    from dataclasses import replace

    failed = [replace(row(0, number, state="failed"), sentence="no memory" if number else "odd") for number in range(3)]
    report = run_report(written_run(tmp_path / "a", [*failed, row(0, 3, 0.5)]))
    assert report.warnings[1:] == ("This search had 2 failures: no memory", "This search had 1 failure: odd")


def test_a_running_search_is_told_as_running(tmp_path):
    written_run(tmp_path / "a", complete=False)
    with RunStore.open(tmp_path / "a"):
        assert run_report(tmp_path / "a").warnings == (
            "This search is still running: it has recorded 2 of 8 generations.",
        )


def test_a_search_of_a_comparison_has_the_comparison_s_verdict(tmp_path):
    written_run(tmp_path / "searches" / "evomal-0")
    write_result(comparison(), tmp_path)
    assert run_report(tmp_path / "searches" / "evomal-0").verdicts.verdicts[0].result == comparison()
    assert run_report(tmp_path).verdicts.verdicts[0].result == comparison()


def test_of_several_runs_each_has_the_verdict_of_its_folder(tmp_path):
    for name in "ab":
        written_run(tmp_path / name)
    assert run_report(tmp_path).verdicts.verdicts == ()
    write_result(comparison(), tmp_path / "b")
    (found,) = run_report(tmp_path).verdicts.verdicts
    assert (found.title, found.result) == ("Comparison: b", comparison())
    assert "not been compared" not in report_page(run_report(tmp_path))


def test_a_comparison_repeats_its_own_searches_and_no_others(tmp_path):
    written_run(tmp_path / "searches" / "evomal-0", source=None)
    written_run(tmp_path / "mine")
    write_result(comparison(words=["evomal", "compare", "diabetes"]), tmp_path)
    report = run_report(tmp_path)
    first, second = (command.text for command in report.shown_commands)
    assert first == f"evomal compare diabetes --out {tmp_path}-again"
    assert second.startswith("evomal search ")
    assert second.endswith("mine-again")
    assert report.as_data()["command"] == first
    assert [command.text for command in report.own_commands] == [second]
    write_result(comparison(), tmp_path)
    assert len(run_report(tmp_path).own_commands) == 2


def test_a_comparison_of_given_losses_needs_no_runs(tmp_path):
    write_result(comparison(verdicts={"huber": ("gain", "huber beats mse")}), tmp_path)
    report = run_report(tmp_path)
    assert (report.title, report.subject) == (
        f"Comparison in {tmp_path.name}", "A comparison of given losses, without searches.",
    )  # fmt: skip
    assert figures_of(report) == []
    assert report.as_data()["verdicts"] == [{"kind": "gain", "sentence": "huber beats mse"}]


def test_a_folder_without_either_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="contains neither a run nor a comparison"):
        run_report(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        run_report(tmp_path / "none")
