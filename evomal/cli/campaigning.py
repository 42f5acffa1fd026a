"""`evomal campaign`."""

import textwrap
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evomal.cli.options import (
    AsJson,
    DataFolder,
    SearchDevice,
    echo,
    echo_json,
    executor_settings,
    jobs_option,
    listed,
    with_options,
)
from evomal.cli.task_specs import given_command
from evomal.errors import InputError
from evomal.settings import SearchSettings
from evomal.text import WIDTH, plural, time_text

if TYPE_CHECKING:
    from evomal.campaigns import Campaign, CampaignResult
    from evomal.campaigns.estimating import CellEstimate

_SHOWN = 6  # names of cells that are left


@with_options(workplace=executor_settings)
def run_campaign_file(
    file: Annotated[Path, typer.Argument(help="The TOML file of a campaign.", show_default=False)],
    *,
    out: Annotated[
        Path, typer.Option(help="Folder of the campaign; the same command resumes from it.", show_default=False)
    ],
    jobs: Annotated[int, jobs_option("cells")] = 1,
    duration: Annotated[
        str | None, typer.Option("--time", help="Time after which to stop, such as 9m; the same command continues.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Tasks of the campaign to run, comma-separated.")] = None,
    methods: Annotated[
        list[str] | None, typer.Option(help="Methods of the campaign to search with, comma-separated (default: all).")
    ] = None,
    presets: Annotated[
        list[str] | None, typer.Option(help="Presets of the campaign to search with, comma-separated (default: all).")
    ] = None,
    search_seeds: Annotated[
        int | None, typer.Option(help="Maximum number of searches of each method; the others can follow later.", min=1)
    ] = None,
    transfer: Annotated[bool, typer.Option(help="Also compare losses that were learned on other tasks.")] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the cells and an estimate of their time, and exit.")
    ] = False,
    trust: Annotated[bool, typer.Option("--trust", help="Run the Python files that the campaign names.")] = False,
    device: SearchDevice = None,
    workplace: list[str],
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Run the searches and comparisons of a campaign file, which make up its table; resumes where it stopped."""
    from evomal.campaigns import read_campaign
    from evomal.campaigns.running import planned, run_campaign
    from evomal.cli.display import stoppable

    campaign = read_campaign(file)
    if campaign.python_files and not trust:
        raise InputError(
            f"{file}: names the Python file of {campaign.python_files[0]}, which this command does not run unless told "
            "to: add --trust if the campaign is your own"
        )
    names = listed(only)
    campaign = campaign.reduced(
        methods=listed(methods), presets=listed(presets), search_seeds=search_seeds, transfer=transfer
    )
    chosen = campaign.chosen(names)
    changes = [*workplace, *([] if device is None else [f"device={device}"])]
    seconds = None if duration is None else SearchSettings().with_texts([f"max_time={duration}"]).max_time
    if dry_run:
        from evomal.campaigns.estimating import estimates

        plans = [plan for plan in planned(campaign, out, changes=changes, data=data) if plan.name in chosen]
        _show_estimates(campaign, estimates(plans), jobs, as_json=as_json)
        return
    with stoppable(lambda: f"; give the same command again to resume in {out}") as listener:
        result = run_campaign(
            campaign, out, only=names, jobs=jobs, seconds=seconds, changes=changes, data=data, listener=listener,
            command=given_command().words,
        )  # fmt: skip
    _show(result, chosen, out, as_json=as_json)


def _show_estimates(campaign: "Campaign", found: "list[CellEstimate]", jobs: int, *, as_json: bool) -> None:
    """Print the cells with the time that each kind of them is expected to take."""
    total = sum(one.left for one in found)
    if as_json:
        rows = [
            {"name": one.name, "cells": one.cells, "done": one.done, "seconds_each": one.seconds, "why": one.why}
            for one in found
        ]
        echo_json({"campaign": campaign.name, "hardware": campaign.hardware, "cells": rows, "seconds": total})
        return
    echo(campaign.title, f"planned for: {campaign.hardware}")
    width = max(len(one.name) for one in found)
    for one in found:
        done = f", {one.done} done" if one.done else ""
        each = one.why if one.seconds is None else f"about {time_text(one.seconds)} each"
        left = f": {each}" if each and one.done < one.cells else ""
        echo(f"{one.name:<{width}}  {plural(one.cells, 'cell')}{done}{left}")
    unknown = " for what is known" if any(one.seconds is None for one in found) else ""
    spread = f", {time_text(total / jobs)} in {jobs} processes if they do not slow each other" if jobs > 1 else ""
    echo(f"left: about {time_text(total)}{unknown} one after the other{spread}")


def _show(result: "CampaignResult", chosen: Container[str], out: Path, *, as_json: bool) -> None:
    """Print the result of each contestant, what is left, and where everything is."""
    from evomal.campaigns.record import FILE_NAME
    from evomal.campaigns.tables import task_lines

    if as_json:
        echo_json(result.model_dump(mode="json"))
        return
    for task in result.tasks:
        for line in task_lines(task):
            echo(*textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False))
    left = [name for name in result.left if name.partition("/")[0] in chosen]
    if left:
        names = ", ".join(left[:_SHOWN]) + (", …" if len(left) > _SHOWN else "")
        sentence = f"{plural(len(left), 'cell')} left: {names}; the same command continues"
        echo(*textwrap.wrap(sentence, WIDTH, subsequent_indent="  ", break_on_hyphens=False))
    echo(f"files: {out / FILE_NAME}, {out / 'campaign.md'}")
