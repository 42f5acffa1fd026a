"""The study of the paper's appendix: AlexNet on CIFAR-10 with absolute cross-entropy and two kinds of smoothing.

    python examples/smoothing_study.py OUT --seeds 3 --steps 20000

Every training is recorded as a line of OUT/trainings-SEED.jsonl and is not repeated when the study is run again; with
--only-seed, several processes can share the work. At the end OUT/smoothing.svg, .pdf, .png and .csv hold the figure and
its data. To draw the figure again from its data:

    python examples/smoothing_study.py OUT --redraw OUT/smoothing.csv

On a GPU, training is in bfloat16.
"""

import argparse
import csv
import json
import statistics
from pathlib import Path

import torch

import evomal
from evomal.figures import figure_style, new_figure, save_figure
from evomal.losses import AbsoluteCrossEntropyLoss, CrossEntropyLoss, LabelSmoothingLoss, SparseLabelSmoothingLoss

BLUE, GREEN, ORANGE, VERMILLION, GREY, INK = "#0072b2", "#009e73", "#e69f00", "#d55e00", "#8c8c8c", "#1b1f24"
Scores = dict[tuple[str, int], evomal.Score]  # by loss and seed

SMOOTHING = (0.05, 0.1, 0.2, 0.4)
KINDS = {"label smoothing": LabelSmoothingLoss, "sparse label smoothing": SparseLabelSmoothingLoss}
PHI = (1.0, 1.1)
LOSSES = {"cross-entropy": CrossEntropyLoss()}
LOSSES |= {f"absolute cross-entropy, φ1 = {phi:g}": AbsoluteCrossEntropyLoss(phi1=phi) for phi in PHI}
LOSSES |= {f"{kind}, ξ = {xi:g}": make(xi) for xi in SMOOTHING for kind, make in KINDS.items()}


def trained(folder: Path, steps: int) -> Scores:
    """Read the trainings of that length that the folder holds."""
    found = {}
    for file in sorted(folder.glob("trainings*.jsonl")):
        for row in map(json.loads, file.read_text().splitlines()):
            if row["score"]["steps"] == steps:
                row["score"]["curve"] = [evomal.CurvePoint(**point) for point in row["score"]["curve"]]
                found[row["loss"], row["score"]["seed"]] = evomal.Score(**row["score"])
    return found


def train(task: evomal.Task, folder: Path, seeds: range, steps: int) -> None:
    """Do the trainings that are missing, seed by seed, so that an interrupted study has complete comparisons."""
    on_gpu = torch.cuda.is_available()
    for seed in seeds:
        for name, loss in LOSSES.items():
            if (name, seed) in trained(folder, steps):
                continue
            score = evomal.train(
                task, loss, seed=seed, steps=steps, curve_points=50, precision="bfloat16" if on_gpu else "float32",
                channels_last=on_gpu, progress=True,
            )  # fmt: skip
            print(f"{name}, seed {seed}: test error {100 * score.test:.2f} %", flush=True)
            with (folder / f"trainings-{seed}.jsonl").open("a") as file:
                file.write(json.dumps({"loss": name, "score": score.to_dict()}) + "\n")


def recorded(path: Path) -> Scores:
    """Read what the figure needs of the trainings in the study's CSV file."""
    rows: dict[tuple[str, int], list[dict[str, str]]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            rows.setdefault((row["loss"], int(row["seed"])), []).append(row)
    return {
        (name, seed): evomal.Score(
            test=float(points[-1]["test_error"]), validation=float(points[-1]["validation_error"]),
            metrics={metric: float(points[-1][f"test_{metric}"]) for metric in ("ece", "nll")},
            curve=[
                evomal.CurvePoint(int(row["step"]), float(row["training_loss"]), float(row["validation_error"]))
                for row in points
            ],
            seed=seed, steps=int(points[-1]["step"]),
        )
        for (name, seed), points in rows.items()
    }  # fmt: skip


def draw(found: Scores, folder: Path) -> None:
    """Draw the validation error during training for each kind of loss, and the test error at the end."""
    figure = new_figure("page", 4.6)
    steps = next(iter(found.values())).steps
    seeds = sorted({seed for _, seed in found})
    colours = (BLUE, GREEN, ORANGE, VERMILLION)
    panels = {
        "absolute cross-entropy": [f"absolute cross-entropy, φ1 = {phi:g}" for phi in PHI],
        **{kind: [f"{kind}, ξ = {xi:g}" for xi in SMOOTHING] for kind in KINDS},
    }
    with figure_style():
        *ways, end = figure.subplots(2, 2, gridspec_kw={"wspace": 0.08, "hspace": 0.12}).flat
        for axes, (title, names) in zip(ways, panels.items(), strict=True):
            for name, colour in zip(["cross-entropy", *names], (GREY, *colours), strict=False):
                curves = [found[name, seed].curve for seed in seeds]
                noted = list(zip(*curves, strict=True))
                mean = [100 * statistics.mean(point.validation for point in points) for points in noted]
                axes.plot([point.step / 1000 for point in curves[0]], mean, color=colour, label=name.split(", ")[-1])
            axes.set(title=title, xlabel="training step (thousands)", xlim=(0, steps / 1000), ylim=(14, 75))
            axes.set_ylabel("validation error (%)")
            axes.legend(loc="upper right")
        for number, (kind, names) in enumerate(panels.items()):
            places = range(len(PHI)) if not number else range(len(PHI), len(PHI) + len(SMOOTHING))
            tests = [[100 * found[name, seed].test for seed in seeds] for name in names]
            end.errorbar(
                [place + 0.06 * (number - 1) for place in places], [statistics.mean(row) for row in tests],
                [statistics.stdev(row) for row in tests], color=(INK, BLUE, VERMILLION)[number], marker="o",
                linestyle="none" if not number else "-", markersize=3, capsize=2, label=kind,
            )  # fmt: skip
        base = [100 * found["cross-entropy", seed].test for seed in seeds]
        mean, spread = statistics.mean(base), statistics.stdev(base)
        end.axhline(mean, color=GREY)
        end.axhspan(mean - spread, mean + spread, color=GREY, alpha=0.2, linewidth=0)
        end.text(5.25, mean - spread - 0.1, "cross-entropy", ha="right", va="top", color=INK, fontsize=7, clip_on=True)
        labels = [*(f"{phi:g}" for phi in PHI), *(f"{xi:g}" for xi in SMOOTHING)]
        end.set(xticks=range(len(labels)), xticklabels=labels, xlabel="φ1 (the first two), smoothing ξ (the others)")
        end.set(title=f"after {steps:,} steps, n = {len(seeds)}", ylabel="test error (%), mean ± deviation")
        end.set_ylim(14.5, 23)
        end.legend(loc="upper left")
    rows = [(name, seed, point, score) for (name, seed), score in found.items() for point in score.curve]
    columns = {
        "loss": [name for name, *_ in rows],
        "seed": [seed for _, seed, *_ in rows],
        "step": [point.step for *_, point, _ in rows],
        "training_loss": [round(point.training_loss, 4) for *_, point, _ in rows],
        "validation_error": [round(point.validation, 4) for *_, point, _ in rows],
        "test_error": [round(score.test, 4) for *_, score in rows],
        "test_ece": [round(score.metrics["ece"], 4) for *_, score in rows],
        "test_nll": [round(score.metrics["nll"], 4) for *_, score in rows],
    }
    save_figure(figure, folder / "smoothing", columns)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--only-seed", type=int)
    parser.add_argument("--redraw", type=Path, metavar="CSV", help="draw the figure from this file, train nothing")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.redraw is not None:
        draw(recorded(chosen.redraw), chosen.out)
        return
    task = evomal.load_task("cifar10", "alexnet")
    if chosen.only_seed is not None:
        train(task, chosen.out, range(chosen.only_seed, chosen.only_seed + 1), chosen.steps)
        return
    train(task, chosen.out, range(chosen.seeds), chosen.steps)
    found = trained(chosen.out, chosen.steps)
    for name in LOSSES:
        scores = [found[name, seed] for seed in range(chosen.seeds)]
        tests = [100 * score.test for score in scores]
        spread = f" ± {statistics.stdev(tests):.2f}" if len(tests) > 1 else ""
        every = " ".join(f"{test:.2f}" for test in tests)
        print(f"{name}: {statistics.mean(tests):.2f}{spread} % ({every})")
    if chosen.seeds > 1:
        draw(found, chosen.out)


if __name__ == "__main__":
    main()
