"""Where the time and memory of one step go: its parts, their kernels, and the memory in use before, in and after each.

The step runs eagerly and waits for the device at both ends of every part, so a kernel belongs to the part in which it
began. On a CPU the operations of torch take the place of kernels.
"""

import contextlib
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import measuring
import torch
from rich.console import Console
from rich.table import Table
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

REST = "rest"
_PREFIX = "part: "
_ROUNDS = 2
_KINDS = {
    "convolution": r"conv|xmma|cutlass|cudnn|implicit|fprop|dgrad|wgrad",
    "product": r"gemm|nvjet|::mm|addmm|linear",
    "batch norm": r"batch_?norm|bn_|welford",
    "pooling": r"pool",
    "layout, cast, copy": r"copy|memcpy|nchw|nhwc|transpose|contiguous",
    "memory set": r"memset|fill",
    "reduction": r"reduce|sum|softmax",
    "element-wise": r"elementwise|vectorized|multi_tensor|add|mul|threshold|relu",
}


@dataclass
class Memory:
    """GiB in use at the begin, at most, and at the end."""

    before: float
    most: float
    after: float


class Parts:
    """Names parts of a step by wrapping functions, and records the memory of each."""

    def __init__(self) -> None:
        self.memory: dict[str, Memory] = {}

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        measuring.synchronise()
        before = gib(torch.cuda.memory_allocated)
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        with record_function(_PREFIX + name):
            yield
            measuring.synchronise()
        self.memory[name] = Memory(before, gib(torch.cuda.max_memory_allocated), gib(torch.cuda.memory_allocated))

    def wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function as a part of the step."""

        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            with self.part(name):
                return function(*arguments, **options)

        return timed

    def wrapped_twice(self, name: str, second: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function, which returns a value and a function, as two parts of the step."""

        def timed(*arguments: Any, **options: Any) -> Any:
            with self.part(name):
                value, further, *others = function(*arguments, **options)
            return value, self.wrapped(second, further), *others

        return timed

    @contextlib.contextmanager
    def of_training(self) -> Iterator[None]:
        """A context in which a training step names its parts."""
        from evomal.engine import optimizers, row_losses, training

        with contextlib.ExitStack() as patches:
            for owner, attribute, name in (
                (training, "called", "forward"),
                (row_losses.LoadedLoss, "__call__", "loss"),
                (torch.autograd, "backward", "backward"),
                (optimizers.TrainingOptimizer, "step", "update"),
            ):
                own = self.wrapped(name, getattr(owner, attribute))
                patches.enter_context(mock.patch.object(owner, attribute, own))
            yield

    @contextlib.contextmanager
    def of_meta(self) -> Iterator[None]:
        """A context in which a meta step of forward mode names its parts."""
        from evomal.engine import meta_gradient
        from evomal.engine.functional_model import FunctionalModel
        from evomal.forest import Forest

        with contextlib.ExitStack() as patches:
            for owner, attribute, function in (
                (
                    FunctionalModel,
                    "linearised",
                    self.wrapped_twice("forward at θ0", "pull-back at θ0", FunctionalModel.linearised),
                ),
                (meta_gradient, "vjp", self.wrapped_twice("forward at θ'", "backward at θ'", meta_gradient.vjp)),
                (meta_gradient, "jvp", self.wrapped("J·v at θ0", meta_gradient.jvp)),
                (Forest, "gradients", self.wrapped("gradient of the loss", Forest.gradients)),
                (Forest, "mixed_gradients", self.wrapped("mixed gradient", Forest.mixed_gradients)),
            ):
                patches.enter_context(mock.patch.object(owner, attribute, function))
            yield


@dataclass(frozen=True)
class Kernel:
    """A kernel, or on a CPU an operation, that ran in a part."""

    part: str
    name: str
    milliseconds: float


def profiled(step: Callable[[], None], watching: Callable[[], contextlib.AbstractContextManager[None]]) -> list[Kernel]:
    """Returns all kernels of some steps, each with its part; times are divided by the number of steps."""
    on_cuda = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
    with watching():
        step()
        with profile(activities=activities) as found:
            for _ in range(_ROUNDS):
                step()
            measuring.synchronise()
    events = found.events()
    assert events is not None
    parts = [
        (event.time_range.start, event.time_range.end, event.name.removeprefix(_PREFIX))
        for event in events
        if event.name.startswith(_PREFIX) and event.device_type == DeviceType.CPU
    ]
    kernels = []
    for event in events:
        if event.name.startswith((_PREFIX, "ProfilerStep", "Activity Buffer", "Optimizer.")):  # ranges, not kernels
            continue
        if on_cuda and event.device_type != DeviceType.CUDA:
            continue
        begin = event.time_range.start
        part = next((name for start, end, name in parts if start <= begin < end), REST)
        microseconds = event.time_range.elapsed_us() if on_cuda else event.self_cpu_time_total
        kernels.append(Kernel(part, event.name, microseconds / 1e3 / _ROUNDS))
    return kernels


def report(title: str, kernels: list[Kernel], memory: dict[str, Memory], *, top: int, console: Console) -> None:
    """Print parts by kind of kernel, with their memory, and the kernels that take longest in each part."""
    names = [*memory, *({REST} & {kernel.part for kernel in kernels})]
    cells: dict[str, Counter[str]] = defaultdict(Counter)
    longest: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for kernel in kernels:
        cells[kernel.part][kind_of(kernel.name)] += kernel.milliseconds
        longest[kernel.part][kernel.name].append(kernel.milliseconds)
    kinds = [kind for kind in (*_KINDS, "other") if any(cells[name][kind] > 5e-4 for name in names)]
    console.print(f"\n[bold]{title}[/bold]: {sum(kernel.milliseconds for kernel in kernels):.3f} ms of kernels a step")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("part", "ms", "kernels", *kinds, "GiB before", "most", "after"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    for name in names:
        count = sum(len(times) for times in longest[name].values()) / _ROUNDS
        own = memory.get(name)
        figures = [f"{value:.2f}" for value in (own.before, own.most, own.after)] if own else []
        table.add_row(
            name, f"{sum(cells[name].values()):.3f}", f"{count:.0f}", *(f"{cells[name][kind]:.3f}" for kind in kinds),
            *figures,
        )  # fmt: skip
    console.print(table)
    for name in names:
        console.print(f"  {name}", style="bold")
        for kernel, times in sorted(longest[name].items(), key=lambda item: -sum(item[1]))[:top]:
            console.print(
                f"    {sum(times):8.3f} ms {len(times) / _ROUNDS:6.0f} ×  {shortened(kernel)}", markup=False,
                highlight=False, no_wrap=True, overflow="ignore", crop=False,
            )  # fmt: skip


def kind_of(kernel: str) -> str:
    """Returns what a kernel does, by its name."""
    lowered = kernel.lower()
    return next((kind for kind, pattern in _KINDS.items() if re.search(pattern, lowered)), "other")


def shortened(kernel: str) -> str:
    """Returns a kernel's name without the noise of templates; what distinguishes element-wise kernels comes last."""
    plain = re.sub(r"void |at::native::|\(anonymous namespace\)::|c10::|std::", "", kernel)
    return plain if len(plain) <= 170 else f"{plain[:110]} … {plain[-57:]}"


def gib(read: Callable[[], int]) -> float:
    return read() / 2**30 if torch.cuda.is_available() else 0.0
