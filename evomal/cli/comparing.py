"""`evomal compare` and `evomal transfer`."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from evomal.cli.display import TerminalDisplay
from evomal.cli.options import AsJson, chosen_task, echo_json, listed_losses, listed_rates, typed_words
from evomal.cli.searching import (
    Address,
    DataFolder,
    ExecutorName,
    GpusPerWorker,
    Workers,
    chosen_preset,
    chosen_settings,
    workplace_texts,
)
from evomal.errors import InputError, StoppedError
from evomal.files import write_whole
from evomal.methods import METHODS
from evomal.tasks import Hardships
from evomal.verdict import tables
from evomal.verdict.comparing import compare
from evomal.verdict.comparison import Comparison
from evomal.verdict.learning_rates import rate_curve
from evomal.verdict.transfer import transfer

Model = Annotated[str | None, typer.Option(help='A model, such as "mlp:hidden=64".')]
Methods = Annotated[str | None, typer.Option(help="Methods to search with, comma-separated, or all.")]
Seeds = Annotated[int, typer.Option(help="Evaluation seeds.", min=1)]
SearchSeeds = Annotated[int, typer.Option(help="Searches of each method.", min=1)]
TuneRates = Annotated[int, typer.Option("--tune-lr", help="Learning rates to try for every loss.", min=0)]
Rescale = Annotated[bool, typer.Option(help="Also train with each loss rescaled to the baseline's gradient.")]
Preset = Annotated[str | None, typer.Option(help="quick or paper (default quick).")]
Config = Annotated[Path | None, typer.Option(help="A TOML file of settings.")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="A setting as key=value; may be repeated.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.")]
Out = Annotated[Path | None, typer.Option(help="Folder to record in, and to go on in.")]

_NOT_REPEATED = ("out", "as_json")


def compare_losses(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="A built-in task, or file.py:function.", show_default=False)],
    model: Model = None,
    methods: Methods = None,
    losses: Annotated[
        str | None, typer.Option(help="Losses by name or file, comma-separated; strong: the usual rivals.")
    ] = None,
    seeds: Seeds = 5,
    search_seeds: SearchSeeds = 1,
    tune_lr: TuneRates = 0,
    rescale: Rescale = True,
    rates: Annotated[
        str | None, typer.Option(help="Learning rates, comma-separated: one comparison at each instead.")
    ] = None,
    search_each: Annotated[bool, typer.Option("--search-each", help="Search at each of the rates anew.")] = False,
    preset: Preset = None,
    config: Config = None,
    changes: Changes = None,
    device: Device = None,
    executor: ExecutorName = None,
    address: Address = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
    out: Out = None,
    label_noise: Annotated[float, typer.Option(help="Share of wrong training labels.")] = 0.0,
    outliers: Annotated[float, typer.Option(help="Share of training targets thrown far off.")] = 0.0,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Compare losses, given or searched for, over the same seeds; the test split is touched once, at the end."""
    place = workplace_texts(executor, address, workers, gpus_per_worker)
    settings = chosen_settings(config, preset, [*(changes or []), *place], device)
    hardships = Hardships(label_noise=label_noise, outliers=outliers)
    chosen = chosen_task(task, model, data, hardships, preset=chosen_preset(config, preset))
    common: dict[str, Any] = {
        "methods": _methods(methods), "losses": listed_losses(losses or "", chosen), "seeds": seeds,
        "search_seeds": search_seeds, "settings": settings, "folder": out,
    }  # fmt: skip
    if search_each and rates is None:
        raise InputError("--search-each is for --rates: it searches at each of them")
    typed = {"command": typed_words(context, without=_NOT_REPEATED)}
    with _stoppable(out) as listener:
        common |= {"listener": listener, "announce": listener.announce}
        if rates is not None:
            curve = rate_curve(chosen, rates=listed_rates(rates), search_each=search_each, **common)
            named = {f"lr {rate:g}": found for rate, found in curve.comparisons.items()}
            _show_each(named, out, as_json=as_json, extra=typed)
        else:
            found = compare(chosen, tune_lr=tune_lr, rescale=rescale, **common)
            _show(found, out, "comparison", as_json=as_json, extra=typed)


def transfer_losses(
    context: typer.Context,
    to: Annotated[str, typer.Option("--to", help="The task to use the losses on.")],
    loss: Annotated[str | None, typer.Option(help="Losses by name or file, comma-separated.")] = None,
    source: Annotated[str | None, typer.Option("--from", help="The task to learn the losses on.")] = None,
    model: Model = None,
    source_model: Annotated[str | None, typer.Option(help="The model of the task learned on.")] = None,
    methods: Methods = "evomal",
    seeds: Seeds = 5,
    search_seeds: SearchSeeds = 5,
    tune_lr: TuneRates = 0,
    rescale: Rescale = True,
    preset: Preset = None,
    config: Config = None,
    changes: Changes = None,
    device: Device = None,
    executor: ExecutorName = None,
    address: Address = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
    out: Out = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Use losses on a task they were not learned on, beside that task's own loss."""
    place = workplace_texts(executor, address, workers, gpus_per_worker)
    settings = chosen_settings(config, preset, [*(changes or []), *place], device)
    if (loss is None) == (source is None):
        raise InputError("either --loss or --from must be given: losses that are there, or a task to learn them on")
    named = chosen_preset(config, preset)
    target = chosen_task(to, model, data, Hardships(), preset=named)
    learned_on = None if source is None else chosen_task(source, source_model, data, Hardships(), preset=named)
    with _stoppable(out) as listener:
        found = transfer(
            target, losses=listed_losses(loss or "", target), source=learned_on, methods=_methods(methods), seeds=seeds,
            search_seeds=search_seeds, tune_lr=tune_lr, rescale=rescale, settings=settings, folder=out,
            listener=listener, announce=listener.announce,
        )  # fmt: skip
    extra = {
        "source": found.source,
        "source_fitness": {name: list(rows) for name, rows in found.fitnesses.items()},
        "command": typed_words(context, without=_NOT_REPEATED),
    }
    _show(found.comparison, out, "transfer", as_json=as_json, extra=extra)


@contextlib.contextmanager
def _stoppable(out: Path | None) -> Iterator[TerminalDisplay]:
    """A listener, and the sentence that Ctrl-C comes to."""
    try:
        with TerminalDisplay() as listener:
            yield listener
    except KeyboardInterrupt:
        again = f"the same command goes on in {out}" if out else "without --out nothing was recorded"
        raise StoppedError(f"interrupted; {again}") from None


def _show(comparison: Comparison, out: Path | None, name: str, *, as_json: bool, extra: dict[str, Any]) -> None:
    content = {**tables.as_data(comparison), **extra}
    if out is not None:
        write_whole(out / f"{name}.md", tables.markdown(comparison).encode())
        write_whole(out / f"{name}.json", (json.dumps(content, indent=2) + "\n").encode())
    typer.echo(json.dumps(content, indent=2) if as_json else tables.text(comparison), nl=as_json)
    if out is not None and not as_json:
        typer.echo(f"files: {out / name}.md, {name}.json")


def _show_each(comparisons: dict[str, Comparison], out: Path | None, *, as_json: bool, extra: dict[str, Any]) -> None:
    content = {name: {**tables.as_data(found), **extra} for name, found in comparisons.items()}
    if out is not None:
        text = "\n".join(f"## {name}\n\n{tables.markdown(found)}" for name, found in comparisons.items())
        write_whole(out / "learning-rates.md", text.encode())
        write_whole(out / "learning-rates.json", (json.dumps(content, indent=2) + "\n").encode())
    if as_json:
        echo_json(content)
        return
    for name, found in comparisons.items():
        typer.echo(f"{name}\n{tables.text(found)}")


def _methods(names: str | None) -> list[str]:
    if names is None:
        return []
    if names == "all":
        return [name for name in METHODS if name != "baseline"]  # which takes part anyway
    return [name.strip() for name in names.split(",") if name.strip() and name.strip() != "baseline"]
