"""Loggers for searches: TensorBoard, MLflow and Weights & Biases, each given to `evomal.search(callback=…)`."""

import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evomal.extras import imports_of, optional_library

with imports_of("evomal.integrations.loggers"):
    from evomal.runs.callbacks import SearchCallback
    from evomal.runs.generations import Generation
    from evomal.runs.recorded_run import Run
    from evomal.runs.results import SearchResult
    from evomal.runs.store import BEST_NAME

Settings = dict[str, str | int | float | bool]


class SearchLogger(SearchCallback, ABC):
    """What all loggers log: settings, the best value and the states of the candidates by generation, and the result.

    For a library of your own, derive from it and define `open`, `log` and `finish`. The generations of a search that is
    resumed are logged from the first one on, so that every log is complete. Numbers that are not finite are left out.
    """

    @abstractmethod
    def open(self, settings: Settings) -> None:
        """Begin a log with these settings of the search; nested ones have dots in their names."""

    @abstractmethod
    def log(self, values: Mapping[str, float], generation: int) -> None:
        """Log numbers of a generation, counted from 1."""

    @abstractmethod
    def finish(self, values: Mapping[str, float], texts: Mapping[str, str], loss_file: Path | None) -> None:
        """Log the result, and end the log; everything is empty if the search was interrupted or failed."""

    def on_start(self, run: Run) -> None:
        self._metric, self._best = run.shown_metric, math.inf
        self.open(_flat({**run.settings, "task": run.task, "metric": run.metric}))
        for generation in run.history:
            self.on_generation(generation)

    def on_generation(self, generation: Generation) -> None:
        values = {f"candidates/{state}": float(count) for state, count in generation.counts.items()}
        values |= {f"seconds/{stage}": taken for stage, taken in generation.seconds.items()}
        if generation.best is not None:
            self._best = min(self._best, generation.best.fitness)
            values["generation best"] = self._metric.value(generation.best.fitness)
            values["size of generation best"] = float(generation.best.size or 0)
        values["best"] = self._metric.value(self._best)
        self.log(_finite(values), generation.number + 1)

    def on_end(self, result: SearchResult | None) -> None:
        if result is None:
            self.finish({}, {}, None)
            return
        values = {f"rivals/{name}": result.value(fitness) for name, fitness in result.rivals.items()}
        if result.final is not None:
            own, rivals = result.final.winner[1], result.final.rivals
            values |= {f"final/{name}": result.value(scores.mean) for name, scores in rivals.items()}
            values["final/learned loss"] = result.value(own.mean)
        texts = {"summary": result.summary()}
        if result.best is not None:
            texts["formula"] = result.best.formula()
        found = None if result.folder is None else result.folder / BEST_NAME
        self.finish(_finite(values), texts, found if found is not None and found.exists() else None)


class TensorBoardLogger(SearchLogger):
    """Logs a search for TensorBoard.

    Args:
        folder: The folder of the event files, which `tensorboard --logdir` takes.

    Raises:
        InputError: TensorBoard is not installed; raised when a search begins.

    Example:
        >>> evomal.search(task, callback=TensorBoardLogger("logs/mine"))  # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def open(self, settings: Settings) -> None:
        board = optional_library("torch.utils.tensorboard", "TensorBoardLogger", "tensorboard")
        self._writer = board.SummaryWriter(str(self.folder))
        self._writer.add_text("settings", "\n".join(f"    {name} = {value}" for name, value in settings.items()))

    def log(self, values: Mapping[str, float], generation: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, generation)
        self._writer.flush()

    def finish(self, values: Mapping[str, float], texts: Mapping[str, str], loss_file: Path | None) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value)
        for name, text in texts.items():
            self._writer.add_text(name, "\n".join(f"    {line}" for line in text.splitlines()))
        self._writer.close()


class MLflowLogger(SearchLogger):
    """Logs a search as an MLflow run, with its loss file as an artifact.

    Args:
        experiment: The name of the experiment; None for MLflow's default.
        run_name: The name of the run; None for one that MLflow chooses.
        tracking_uri: Where MLflow keeps its runs, such as `sqlite:///mlflow.db`; None for MLflow's own setting.

    Raises:
        InputError: MLflow is not installed; raised when a search begins.

    Example:
        >>> evomal.search(task, folder="runs/mine", callback=MLflowLogger("losses"))  # doctest: +SKIP
    """

    def __init__(
        self, experiment: str | None = None, *, run_name: str | None = None, tracking_uri: str | None = None
    ) -> None:
        self.experiment, self.run_name, self.tracking_uri = experiment, run_name, tracking_uri

    def open(self, settings: Settings) -> None:
        mlflow = optional_library("mlflow", "MLflowLogger", "mlflow")
        # A client, as MLflow's functions would change the run and the place that the rest of the program logs to.
        self._client = mlflow.MlflowClient(tracking_uri=self.tracking_uri)
        name = self.experiment or "Default"
        found = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if found is None else found.experiment_id
        self._run = self._client.create_run(number, run_name=self.run_name).info.run_id
        for key, value in settings.items():
            self._client.log_param(self._run, _mlflow_name(key), value)

    def log(self, values: Mapping[str, float], generation: int) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, _mlflow_name(name), value, step=generation)

    def finish(self, values: Mapping[str, float], texts: Mapping[str, str], loss_file: Path | None) -> None:
        self.log(values, 0)
        for name, text in texts.items():
            self._client.log_text(self._run, text, f"{name}.txt")
        if loss_file is not None:
            self._client.log_artifact(self._run, str(loss_file))
        self._client.set_terminated(self._run, "FINISHED" if texts else "FAILED")


class WandbLogger(SearchLogger):
    """Logs a search as a Weights & Biases run, with its loss file.

    Args:
        options: Arguments of `wandb.init`, such as `project`, `name` and `mode="offline"`.

    Raises:
        InputError: wandb is not installed; raised when a search begins.

    Example:
        >>> evomal.search(task, callback=WandbLogger(project="losses", mode="offline"))  # doctest: +SKIP
    """

    def __init__(self, **options: Any) -> None:
        self.options = options

    def open(self, settings: Settings) -> None:
        wandb = optional_library("wandb", "WandbLogger", "wandb")
        given = self.options.get("config") or {}
        self._run = wandb.init(**{**self.options, "config": {**settings, **given}})

    def log(self, values: Mapping[str, float], generation: int) -> None:
        self._run.log({**values, "generation": generation}, step=generation, commit=True)

    def finish(self, values: Mapping[str, float], texts: Mapping[str, str], loss_file: Path | None) -> None:
        self._run.summary.update({**values, **texts})
        if loss_file is not None:
            self._run.save(str(loss_file), base_path=str(loss_file.parent), policy="now")
        self._run.finish(exit_code=0 if texts else 1)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Settings:
    found: Settings = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif value is not None:
            found[f"{prefix}{name}"] = value if isinstance(value, str | int | float) else str(value)
    return found


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _mlflow_name(name: str) -> str:
    """The name with underscores for the characters that MLflow refuses, as in `focal:gamma=3`."""
    return re.sub(r"[^\w\-./ :]", "_", name)
