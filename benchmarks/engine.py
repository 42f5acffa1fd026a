"""One generation by the engine against the straightforward way: one candidate at a time, eager, double backprop.

The reference does the same work with the same starts and batches, which are made beforehand, so no loader and no
initialisation counts on either side. Both are measured in turns within one run. A generation is 25 candidates: 250 meta
steps, the rejection filter, 500 training steps, all evaluated on the validation split. The engine runs it in full where
that takes seconds; where it would take minutes, and always for the reference, fewer steps and candidates are run and
scaled up: the time of one step and what goes with it, plus the time of a further step as often as there are. The data
are random: speed does not depend on them.
"""

import argparse
import dataclasses
import functools
import statistics
from dataclasses import dataclass
from typing import get_args

import measuring
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch.func import functional_call
from torch.profiler import ProfilerActivity, profile

from evomal.engine import Engine, EngineSettings
from evomal.engine.meta_gradient import Tangent
from evomal.engine.precision import Precision
from evomal.engine.resolve import initial_model
from evomal.engine.training import evaluate_model
from evomal.expression import Expression
from evomal.expression.generate import ramped_half_and_half
from evomal.losses import ExpressionLoss
from evomal.losses.expression_loss import starting_weights
from evomal.randomness import generator
from evomal.tasks.metrics import chosen_metric
from evomal.tasks.models import make_model
from evomal.tasks.parts import Part
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task

POPULATION, META_STEPS, TRAINING_STEPS, FILTER_SAMPLES = 25, 250, 500, 100
ROUNDS = 3
STAGES = ("optimise", "filter", "evaluate")
TANGENT: Tangent | None = None


@dataclass(frozen=True)
class Case:
    """A model on data of a shape, and the share of the steps that is run."""

    name: str
    model: str
    shape: tuple[int, ...]
    classes: int
    rows: tuple[int, int]
    filter_steps: int
    device: str
    share: float = 1.0
    precision: Precision = "float32"
    channels_last: bool = False
    candidates: int = POPULATION


MNIST_ROWS = (54_000, 6_000)
CASES = (
    Case("diabetes mlp 64", "mlp:hidden=64", (10,), 0, (266, 88), 1000, "cpu"),
    Case("diabetes mlp 1000", "mlp", (10,), 0, (266, 88), 1000, "cpu", 0.02),
    Case("mnist lenet5", "lenet5", (1, 28, 28), 10, MNIST_ROWS, 100, "cpu", 0.02),
    Case("diabetes mlp 64", "mlp:hidden=64", (10,), 0, (266, 88), 1000, "cuda"),
    Case("diabetes mlp 1000", "mlp", (10,), 0, (266, 88), 1000, "cuda"),
    Case("diabetes mlp 1000", "mlp", (10,), 0, (266, 88), 1000, "cuda", precision="tf32"),
    Case("mnist lenet5", "lenet5", (1, 28, 28), 10, MNIST_ROWS, 100, "cuda"),
    Case("cifar resnet18", "resnet18", (3, 32, 32), 10, (45_000, 5_000), 100, "cuda", 0.2, "tf32", True, 2),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scaling", action="store_true", help="time against population and tree size instead")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only this device")
    parser.add_argument("--case", help="only cases whose name has this text")
    parser.add_argument("--tangent", choices=get_args(Tangent), help="how Jacobian-vector products are had")
    options = parser.parse_args()
    global TANGENT
    TANGENT = options.tangent
    console = Console(width=100)
    console.print(f"{measuring.hardware()}, {POPULATION} candidates, median of {ROUNDS} rounds")
    chosen = [case for case in CASES if options.device in (None, case.device) and (options.case or "") in case.name]
    if not torch.cuda.is_available():
        console.print("cuda: not measured, there is no CUDA device")
        chosen = [case for case in chosen if case.device == "cpu"]
    for case in chosen:
        if options.scaling:
            show_scaling(console, case)
        else:
            show_ratios(console, case)


def show_ratios(console: Console, case: Case) -> None:
    trees = population(case.candidates)
    ours, reference = Ours(case, trees), Reference(case, trees)
    times: dict[str, list[list[float]]] = {stage: [[], []] for stage in STAGES}
    for stage in STAGES:
        for way in (ours, reference):
            way.warm_up(stage)
        for _ in range(ROUNDS):
            for column, way in zip(times[stage], (ours, reference), strict=True):
                column.append(way.seconds(stage))
    table = Table(title=case_title(case, ours), box=None, pad_edge=False, header_style="bold", title_justify="left")
    for heading in ("stage", "reference s", "evomal s", "speed-up", "range"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    totals = [0.0, 0.0]
    for stage, (own, plain) in times.items():
        middle = statistics.median(own), statistics.median(plain)
        totals = [total + value for total, value in zip(totals, middle, strict=True)]
        ratios = sorted(b / a for a, b in zip(own, plain, strict=True))
        table.add_row(
            stage, f"{middle[1]:.3f}", f"{middle[0]:.3f}", f"{middle[1] / middle[0]:.1f}×",
            f"{ratios[0]:.1f}–{ratios[-1]:.1f}",
        )  # fmt: skip
    table.add_row("all", f"{totals[1]:.3f}", f"{totals[0]:.3f}", f"{totals[1] / totals[0]:.1f}×", "")
    console.print(table)
    console.print(ours.remarks(), "", soft_wrap=True)


def case_title(case: Case, ours: "Ours") -> str:
    scaled = (
        f"evomal: {case.share:g} of the steps of {case.candidates} candidates, scaled up; " if case.share < 1 else ""
    )
    plain = f"reference: {Reference.candidates(case)} candidates, {Reference.share(case):g} of the steps, scaled up"
    plan = ours.engine.plans[0]
    return f"{case.name}, {case.device}, {case.precision}, {plan.mode} ({scaled}{plain})"


def show_scaling(console: Console, case: Case) -> None:
    table = Table(title=f"{case.name}, {case.device}: ms a candidate", box=None, pad_edge=False, title_justify="left")
    for heading in ("candidates", "nodes", *STAGES, "all"):
        table.add_column(heading, justify="right")
    short = dataclasses.replace(case, share=min(case.share, 0.2))
    grown = [(count, None) for count in (1, 5, 25, 100, 400)]
    sized: list[tuple[int, int | None]] = [(POPULATION, size) for size in (5, 10, 20, 40, 60)]
    for count, size in [*grown, *sized]:
        trees = population(count) if size is None else trees_of_size(count, size)
        ours = Ours(short, trees)
        found = []
        for stage in STAGES:
            ours.warm_up(stage)
            found.append(statistics.median(ours.seconds(stage) for _ in range(ROUNDS)) / POPULATION * 1e3)
        nodes = f"{statistics.mean(tree.size for tree in trees):.0f}"
        table.add_row(str(count), nodes, *(f"{value:.2f}" for value in found), f"{sum(found):.2f}")
    console.print(table, "")


def population(count: int) -> list[Expression]:
    return list(ramped_half_and_half(count, generator=generator(0, "benchmark")))


def trees_of_size(count: int, size: int) -> list[Expression]:
    """Trees of about that many nodes, none flat: sums of squared differences under analytic quotients."""
    part = "tanh(aq(sub(y, f), f))"
    text, nodes = "sub(y, f)", 3
    while nodes + 6 <= size:
        text, nodes = f"add({text}, {part})", nodes + 6
    return [Expression.parse(f"square({text})")] * count


def task_of(case: Case) -> Task:
    generator_ = torch.Generator().manual_seed(0)

    def part(rows: int) -> Part:
        inputs = torch.randn(rows, *case.shape, generator=generator_)
        if case.classes:
            return Part(inputs, torch.randint(case.classes, (rows,), generator=generator_))
        return Part(inputs, torch.randn(rows, 1, generator=generator_))

    kind = "classification" if case.classes else "regression"
    recipe = (
        Recipe() if case.classes == 0 or "resnet" in case.model else Recipe(momentum=0, nesterov=False, weight_decay=0)
    )
    return Task(
        kind=kind,
        train=part(case.rows[0]),
        validation=part(case.rows[1]),
        test=part(10),
        model=lambda: make_model(case.model, case.shape, case.classes or 1),
        metric=chosen_metric(None, kind),
        outputs=case.classes or 1,
        recipe=recipe,
    )


class Ours:
    """The engine; times are scaled to a whole generation."""

    def __init__(self, case: Case, trees: list[Expression]) -> None:
        self.case, self.trees = case, trees
        rng = generator(0, "benchmark weights")
        self.weights = [starting_weights(tree, generator=rng) for tree in trees]
        settings = EngineSettings(
            population=len(trees), meta_steps=steps(META_STEPS, case.share),
            training_steps=steps(TRAINING_STEPS, case.share), filter_steps=case.filter_steps,
            filter_samples=FILTER_SAMPLES, device=case.device, precision=case.precision,
            channels_last=case.channels_last, tangent=TANGENT,
        )  # fmt: skip
        self.settings = settings
        task = task_of(case)
        self.engine = Engine(task, seed=0, settings=settings)
        self.engine.prepare()
        brief = dataclasses.replace(settings, meta_steps=1, training_steps=1)
        self.brief = Engine(task, seed=0, settings=brief) if case.share < 1 else None

    def warm_up(self, stage: str) -> None:
        for engine in (self.engine, self.brief):
            if engine is not None:
                self.run(stage, engine)

    def seconds(self, stage: str) -> float:
        taken = measuring.seconds(lambda: self.run(stage, self.engine))
        if self.brief is not None and stage != "filter":
            brief = self.brief
            done, wanted = (
                (self.settings.meta_steps, META_STEPS)
                if stage == "optimise"
                else (self.settings.training_steps, TRAINING_STEPS)
            )
            taken = scaled(measuring.seconds(lambda: self.run(stage, brief)), taken, done, wanted)
        return taken * POPULATION / len(self.trees)

    def run(self, stage: str, engine: Engine) -> None:
        if stage == "optimise":
            engine.optimise(self.trees, self.weights)
        elif stage == "filter":
            engine.gains(self.trees, self.weights)
        else:
            engine.evaluate(self.trees, self.weights)

    def remarks(self) -> str:
        plan = self.engine.plans[0]
        text = f"plan: {plan.mode}, {plan.reason}; predicted {plan.predicted_bytes / 2**20:.0f} MiB"
        if self.case.device != "cuda":
            return text
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
        for stage in STAGES:
            self.run(stage, self.engine)
        peak = torch.cuda.max_memory_allocated()
        text += f", peak {peak / 2**20:.0f} MiB of which kept {base / 2**20:.0f} MiB"
        for stage, count in (("optimise", self.settings.meta_steps), ("evaluate", self.settings.training_steps)):
            with profile(activities=[ProfilerActivity.CUDA]) as profiled:
                self.run(stage, self.engine)
                torch.cuda.synchronize()
            events = [event for event in profiled.events() if event.device_type.name == "CUDA"]
            busy = sum(event.device_time for event in events) / 1e3
            chunks = self.engine.steps(len(self.trees))[stage] / count
            per_step = f"{len(events) / count / chunks:.0f} kernels and {busy / count / chunks:.3f} ms busy a step"
            text += f"; {stage}: {per_step}"
        return text


class Reference:
    """One candidate at a time, eager, double backprop; a few candidates and steps, scaled up."""

    def __init__(self, case: Case, trees: list[Expression]) -> None:
        self.case = case
        self.task = task_of(case)
        self.device = torch.device(case.device)
        self.trees = trees[: self.candidates(case)]
        rng = generator(0, "benchmark weights")
        self.weights = [starting_weights(tree, generator=rng) for tree in self.trees]
        self.train, self.validation = self.task.train.to(self.device), self.task.validation.to(self.device)
        self.model = initial_model(self.task, 0).to(self.device)
        self.counts = {"optimise": META_STEPS, "filter": case.filter_steps, "evaluate": TRAINING_STEPS}

    @staticmethod
    def candidates(case: Case) -> int:
        return min(5, case.candidates)

    @staticmethod
    def share(case: Case) -> float:
        return min(case.share, 0.02)

    def warm_up(self, stage: str) -> None:
        self.run(stage, 2)

    def seconds(self, stage: str) -> float:
        wanted = self.counts[stage]
        done = max(2, steps(wanted, self.share(self.case)))
        brief, taken = (measuring.seconds(functools.partial(self.run, stage, count)) for count in (1, done))
        return scaled(brief, taken, done, wanted) * POPULATION / len(self.trees)

    def run(self, stage: str, count: int) -> None:
        way = {"optimise": self.optimise, "filter": self.filter, "evaluate": self.evaluate}[stage]
        for tree, weights in zip(self.trees, self.weights, strict=True):
            way(tree, torch.tensor(weights, device=self.device), count)

    def batch(self, step: int, part: Part) -> tuple[torch.Tensor, torch.Tensor]:
        start = step * 128 % max(1, len(part) - 128)
        return part.inputs[start : start + 128], part.targets[start : start + 128]

    def optimise(self, tree: Expression, weights: torch.Tensor, count: int) -> None:
        weights.requires_grad_()
        loss = ExpressionLoss(tree, weights=weights, kind=self.task.kind)
        task_loss = F.cross_entropy if self.case.classes else F.mse_loss
        optimizer = torch.optim.Adam([weights], lr=1e-3)
        recipe = self.task.recipe
        rate = recipe.lr * (1 + recipe.momentum)
        for step in range(count):
            own = {name: value.detach().requires_grad_() for name, value in self.model.named_parameters()}
            inputs, targets = self.batch(step, self.train)
            value = loss(functional_call(self.model, own, (inputs,)), targets)
            gradients = torch.autograd.grad(value, list(own.values()), create_graph=True)
            moved = {
                name: theta - rate * (gradient + recipe.weight_decay * theta)
                for (name, theta), gradient in zip(own.items(), gradients, strict=True)
            }
            inputs, targets = self.batch(step, self.validation)
            optimizer.zero_grad()
            task_loss(functional_call(self.model, moved, (inputs,)), targets).backward(inputs=[weights])
            optimizer.step()

    def filter(self, tree: Expression, weights: torch.Tensor, count: int) -> None:
        loss = ExpressionLoss(tree, weights=weights, kind=self.task.kind)
        targets = self.train.targets[:FILTER_SAMPLES]
        with torch.no_grad():
            outputs = self.model(self.train.inputs[:FILTER_SAMPLES])
        variable = outputs.clone().requires_grad_()
        optimizer = torch.optim.Adam([variable], lr=0.01)
        for _ in range(count):
            optimizer.zero_grad()
            loss(variable, targets).backward()
            optimizer.step()

    def evaluate(self, tree: Expression, weights: torch.Tensor, count: int) -> None:
        loss = ExpressionLoss(tree, weights=weights, kind=self.task.kind)
        model, recipe = initial_model(self.task, 0).to(self.device).train(), self.task.recipe
        optimizer = torch.optim.SGD(
            model.parameters(), lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay,
        )  # fmt: skip
        for step in range(count):
            inputs, targets = self.batch(step, self.train)
            optimizer.zero_grad()
            loss(model(inputs), targets).backward()
            optimizer.step()
        self.task.metric(evaluate_model(model, self.validation.inputs), self.validation.targets)


def scaled(brief: float, taken: float, done: int, wanted: int) -> float:
    """The time of so many wanted steps, from that of one and that of those done."""
    return brief + max(0.0, taken - brief) / (done - 1) * (wanted - 1)


def steps(count: int, share: float) -> int:
    return max(1, round(count * share))


if __name__ == "__main__":
    main()
