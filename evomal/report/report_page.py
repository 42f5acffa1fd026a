"""A report as one page of HTML."""

import importlib.metadata

from evomal.figures.style import inline_svg
from evomal.report.formulas import LONGEST_ON_A_LINE
from evomal.report.loss_table import ShownFormula, loss_table
from evomal.report.page import entry_list, framed, in_code, scrolling
from evomal.report.run_report import RunReport, ShownFigure
from evomal.text import escape_html, markdown_to_html

_KINDS = {"gain": "gain", "no gain": "no-gain", "learning rate": "no-gain", "worse": "worse", "undecided": "undecided"}
_RUN_HEADS = ("folder", "task", "method", "seed", "state", "generations", "trained with", "best validation")
_LONGEST_COMMAND = 4_000
_NOTHING = "There is no best loss: nothing was trained."


def report_page(report: RunReport) -> str:
    """One file that opens anywhere: no script, nothing from elsewhere."""
    figures = report.figures()
    shapes = [figure for figure in figures if figure.title.startswith("Shape")]
    others = [figure for figure in figures if not figure.title.startswith("Shape")]
    verdict, best = _verdict(report), _best(report) + "".join(map(_figure, shapes, range(len(shapes))))
    is_about_one = report.run is not None
    sections = [("best", "Best loss", best), ("verdict", "Verdict", verdict)]
    sections = [
        *(sections if is_about_one else sections[::-1]),
        ("figures", "Figures", "".join(map(_figure, others, range(len(shapes), len(figures))))),
        ("losses", "Best losses", _tables(report)),
        ("runs", "Runs", "" if is_about_one else _runs(report)),
        ("settings", "Settings", _settings(report)),
        ("environment", "Environment", entry_list(report.settings.environment_entries())),
        ("repeat", "How to repeat it", _commands(report)),
    ]
    shown = [section for section in sections if section[2]]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in shown)
    body = [
        f'<header><h1>{escape_html(report.title)}</h1><p class="soft">{escape_html(report.subject)}</p></header>',
        f'<nav aria-label="contents">{links}</nav>',
        *(f'<p class="note">{escape_html(sentence)}</p>' for sentence in report.warnings),
        "<main>",
        *(f'<section id="{name}"><h2>{title}</h2>{content}</section>' for name, title, content in shown),
        "</main>",
        f"<footer>made with {_made_with()}</footer>",
    ]
    return framed(f"{report.title}: report", "\n".join(body), wide=True)


def _verdict(report: RunReport) -> str:
    parts = []
    for verdict in report.verdicts.verdicts:
        items = "".join(
            f'<li class="{_KINDS.get(sentence.kind, "undecided")}"><strong>{escape_html(sentence.kind)}</strong>'
            f"{escape_html(sentence.sentence)}</li>"
            for sentence in verdict.sentences
        )
        parts.append(f"<h3>{escape_html(verdict.title)}</h3>")
        parts.append(f'<ul class="verdicts">{items}</ul>' if items else "")
        parts.append(scrolling(markdown_to_html(verdict.text, ""), verdict.title) if verdict.text.strip() else "")
    if parts:
        return "".join(parts)
    command = report.compare_command()
    how = "" if command is None else f" It is compared by:</p><pre>{in_code(command)}</pre><p>"
    what = "This loss has" if report.run is not None else "These losses have"
    return "" if not report.formulas else (
        f"<p>{what} not been compared with the task’s own loss yet, on seeds that no search has seen: "
        f"validation alone does not tell a gain.{how}</p>".replace("<p></p>", "")
    )  # fmt: skip


def _best(report: RunReport) -> str:
    if not report.formulas:
        return f"<p>{_NOTHING}</p>" if report.runs.runs else ""
    is_one = len(report.formulas) == 1
    return "".join(_formula(formula, with_task=not is_one) for formula in report.formulas)


def _formula(formula: ShownFormula, *, with_task: bool) -> str:
    heading = f"<h3>{escape_html(formula.best.task)}</h3>" if with_task else ""
    too_wide = ' class="too-wide"' if len(formula.text) > LONGEST_ON_A_LINE else ""
    typeset = f"<div{too_wide} tabindex=0>{formula.mathml}</div>" if formula.mathml else ""
    written = f"<dt>written</dt><dd>{in_code(formula.written)}</dd>" if formula.written != formula.text else ""
    symbols = f'<p class="soft">{escape_html(formula.symbols)}</p>' if formula.symbols else ""
    return (
        f'{heading}<div class="formula">{typeset}<dl><dt>formula</dt><dd>{in_code(formula.text)}</dd>{written}</dl>'
        f"{symbols}</div><p>{escape_html(formula.sentence)}</p>"
    )


def _figure(shown: ShownFigure, number: int) -> str:
    narrow = ' class="narrow"' if shown.is_narrow else ""
    drawn = inline_svg(shown.figure, escape_html(shown.description), prefix=f"f{number}-")
    return f"<h3>{escape_html(shown.title)}</h3><figure{narrow}>{drawn}</figure>"


def _tables(report: RunReport) -> str:
    parts: list[str] = []
    for best in report.best if report.formulas else ():
        if len(report.best) > 1:
            parts.append(f"<h3>{escape_html(best.task)}</h3>")
        parts.append(loss_table(best, with_runs=report.run is None) if best.rows else f"<p>{_NOTHING}</p>")
    return "".join(parts)


def _runs(report: RunReport) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in _RUN_HEADS)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape_html(cell)}</td>' for cell in cells)}</tr>" for cells in report.run_rows()
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return scrolling(table, "the runs") if rows else ""


def _settings(report: RunReport) -> str:
    entries = report.settings.entries()
    if not entries:
        return ""
    task = entry_list(report.settings.task_entries())
    return (
        f'<p class="soft">{escape_html(report.settings.sentence())}</p>{entry_list(entries)}'
        f"{f'<h3>Task</h3>{task}' if task else ''}"
    )


def _commands(report: RunReport) -> str:
    commands = report.shown_commands
    parts = [f"<pre>{in_code(one.text, _LONGEST_COMMAND)}</pre>" for one in commands if one.text is not None]
    for sentence in dict.fromkeys(one.sentence for one in commands if one.sentence):
        parts.append(f'<p class="soft">{escape_html(f"{sentence[0].upper()}{sentence[1:]}.")}</p>')
    return "".join(parts)


def _made_with() -> str:
    return escape_html(
        ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("evomal", "torch", "matplotlib"))
    )
