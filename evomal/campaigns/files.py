"""The files of a campaign: its result as JSON, its page, and its figures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from evomal.campaigns.declaration import Campaign
from evomal.campaigns.drawing import draw_gains, gains
from evomal.campaigns.record import FILE_NAME, LONGEST, CampaignResult
from evomal.campaigns.tables import campaign_markdown
from evomal.figures.filter_shares import draw_filter_shares, filter_shares
from evomal.figures.run_times import draw_run_times, run_times
from evomal.figures.search_curves import draw_search_curves, search_curves
from evomal.figures.style import Figure, save_figure
from evomal.files import create_folder, find_foreign, write_atomically
from evomal.runs.reading import read_runs
from evomal.runs.recorded_run import Runs

PAGE_NAME, FIGURES = "campaign.md", "figures"
_OF_SEARCHES: dict[str, tuple[Callable[[Runs], Any], Callable[[Any], Figure]]] = {
    "search-curves": (search_curves, draw_search_curves),
    "filters": (filter_shares, draw_filter_shares),
    "run-times": (run_times, draw_run_times),
}


def write_files(result: CampaignResult, out: Path, campaign: Campaign) -> None:
    """Write what is measured so far, unless it is there; the figures of the searches when the last cell is done."""
    if find_foreign(out / FILE_NAME, limit=LONGEST) == result.text().encode():
        return
    compared = gains([task for task in result.tasks if task.comparison is not None])
    figures = create_folder(out / FIGURES)
    if compared.points:
        save_figure(draw_gains(compared), figures / "gains", compared.columns())
    wanted = {task.name: task.figures.kinds for task in campaign.tasks}
    for task in () if result.left else result.tasks:
        kinds = [kind for kind in wanted[task.name] if kind in _OF_SEARCHES]
        if task.searches and kinds:
            runs = read_runs([out / task.name / "searches"])
            for kind in kinds:
                make, draw = _OF_SEARCHES[kind]
                data = make(runs)
                save_figure(draw(data), figures / f"{task.name}-{kind}", data.columns())
    write_atomically(out / PAGE_NAME, campaign_markdown(result, figures).encode())
    result.write(out / FILE_NAME)  # last, as it says that all others are there
