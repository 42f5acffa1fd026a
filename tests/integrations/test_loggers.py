"""Loggers: what they log, by a logger that keeps it, and that it arrives in TensorBoard, MLflow and W&B."""

import sys

import pytest

from evomal.errors import InputError
from evomal.integrations.loggers import MLflowLogger, SearchLogger, TensorBoardLogger, WandbLogger
from tests.integrations import library
from tests.runs.test_run_loop import run


class Kept(SearchLogger):
    """Keeps what is logged."""

    def open(self, settings):
        self.settings, self.generations = settings, {}

    def log(self, values, generation):
        self.generations[generation] = values

    def finish(self, values, texts, loss_file):
        self.values, self.texts, self.loss_file = values, texts, loss_file


def test_what_is_logged(tmp_path):
    kept = Kept()
    result = run(tmp_path, callback=kept)
    assert (kept.settings["method"], kept.settings["seed"], kept.settings["settings.population"]) == ("evomal", 1, 6)
    assert [*kept.generations] == [1, 2, 3]
    best = min(generation.best.fitness for generation in result.history if generation.best is not None)
    assert kept.generations[3]["best"] == best
    assert kept.generations[2]["candidates/evaluated"] == result.history[1].counts["evaluated"]
    assert "best" not in kept.generations[1]  # nothing was trained yet
    assert kept.values["rivals/mse"] == result.rivals["mse"]
    assert kept.values["final/learned loss"] == result.best.mean
    assert kept.texts["formula"] == result.best.formula()
    assert kept.loss_file == tmp_path / "best.json"
    again = Kept()
    run(tmp_path, callback=again)  # nothing is computed, and the log is whole
    assert again.generations == kept.generations


def test_a_logger_defines_all_three_methods():
    class Unfinished(SearchLogger):
        open = log = Kept.log

    with pytest.raises(TypeError, match=r"abstract method '?finish"):
        Unfinished()


def test_the_log_of_a_search_that_fails_is_ended():
    kept = Kept()
    with pytest.raises(ZeroDivisionError):
        run(callback=[kept, lambda generation: 1 / 0])
    assert (kept.values, kept.texts, kept.loss_file) == ({}, {}, None)


@pytest.mark.parametrize(
    ("logger", "module", "name"),
    [
        (TensorBoardLogger("logs"), "torch.utils.tensorboard", "tensorboard"),
        (MLflowLogger(), "mlflow", "mlflow"),
        (WandbLogger(), "wandb", "wandb"),
    ],
)
def test_without_the_library_it_is_one_sentence(logger, module, name, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"needs .*, which is not installed: pip install {name}$"):
        logger.open({})


def test_tensorboard(tmp_path):
    library("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run(callback=TensorBoardLogger(tmp_path / "logs"))
    events = EventAccumulator(str(tmp_path / "logs")).Reload()
    logged = events.Scalars("best")
    assert [entry.step for entry in logged] == [2, 3]
    assert logged[-1].value == pytest.approx(min(one.best.fitness for one in result.history if one.best))
    assert events.Scalars("rivals/mse")[0].value == pytest.approx(result.rivals["mse"])
    assert {"formula/text_summary", "settings/text_summary", "summary/text_summary"} <= set(events.Tags()["tensors"])


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow(tmp_path):
    mlflow = library("mlflow")
    place = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = mlflow.MlflowClient(tracking_uri=place)
    experiment = client.create_experiment("losses", artifact_location=str(tmp_path / "artifacts"))
    result = run(tmp_path / "run", callback=MLflowLogger("losses", run_name="mine", tracking_uri=place))
    (logged,) = client.search_runs([experiment])
    assert (logged.info.run_name, logged.info.status) == ("mine", "FINISHED")
    assert logged.data.params["method"] == "evomal"
    assert [entry.step for entry in client.get_metric_history(logged.info.run_id, "best")] == [2, 3]
    assert logged.data.metrics["rivals/mse"] == result.rivals["mse"]
    artifacts = {entry.path for entry in client.list_artifacts(logged.info.run_id)}
    assert artifacts == {"best.json", "formula.txt", "summary.txt"}


@pytest.mark.filterwarnings("ignore")  # W&B's own
def test_weights_and_biases_offline(tmp_path, monkeypatch):
    wandb = library("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)  # it writes a log of its own into the working folder
    summary, finish = {}, wandb.Run.finish

    def keep_summary(run, **options):  # which cannot be read later
        summary.update(dict(run.summary))
        finish(run, **options)

    monkeypatch.setattr(wandb.Run, "finish", keep_summary)
    logger = WandbLogger(project="losses", mode="offline", dir=str(tmp_path), config={"mine": 3})
    result = run(tmp_path / "run", callback=logger)
    assert summary["formula"] == result.best.formula()
    assert summary["rivals/mse"] == result.rivals["mse"]
    assert summary["generation"] == 3
    assert (logger._run.config["method"], logger._run.config["mine"]) == ("evomal", 3)
    assert [path.name for path in tmp_path.glob("wandb/offline-run-*/files/*.json")] == ["best.json"]
