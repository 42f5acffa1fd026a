"""`evomal doctor`: what is installed here, and whether it works."""

import importlib.metadata
import os
import platform
import textwrap
import time
from pathlib import Path
from typing import Any

import typer

from evomal import __version__
from evomal.cli.options import AsJson, DataFolder, echo, echo_json
from evomal.extras import extras
from evomal.text import one_line, plural

_PACKAGES = ("torch", "numpy", "sympy", "numba", "triton")
_NOT_LISTED = ("all", "dev", "docs")
_ROWS, _CLASSES = 512, 1024  # large enough for the kernels to be used
_TOLERANCE = 1e-5
_WIDTH = 80


def examine(data: DataFolder = None, as_json: AsJson = False) -> None:
    """Check this installation: versions, devices, kernels, data, extras.

    Kernels are compiled, which takes some seconds the first time, and compared with torch. Exits with 1 if one fails.
    """
    found: dict[str, Any] = {
        "versions": {
            "python": platform.python_version(),
            "evomal": __version__,
            **{name: _version(name) for name in _PACKAGES},
        },
        # platform.platform() would start a process to ask for the processor.
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "devices": _devices(),
        "kernels": _kernels(),
        "data": _data(data),
        "extras": _missing_libraries(),
    }
    if as_json:
        echo_json(found)
    else:
        echo(*_lines(found))
    if any(kernel["problem"] for kernel in found["kernels"].values()):
        raise typer.Exit(1)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> dict[str, str]:
    import torch

    found = {"cpu": f"{plural(os.cpu_count() or 1, 'core')}, torch uses {plural(torch.get_num_threads(), 'thread')}"}
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        found[f"cuda:{index}"] = f"{device.name}, {device.total_memory / 2**30:.0f} GiB"
    if torch.backends.mps.is_available():
        found["mps"] = "Apple GPU; torch operations are used, as evomal has no kernels for it"
    return found


def _kernels() -> dict[str, dict[str, Any]]:
    """Returns, for each compiler, the device, the seconds of the first use, and the problem; None if there is none."""
    import torch

    from evomal.extras import has_numba, has_triton

    found = {}
    for compiler, is_there, device in (
        ("numba", has_numba(), "cpu"),
        ("triton", has_triton() and torch.cuda.is_available(), "cuda"),
    ):
        if is_there:
            began = time.perf_counter()
            try:
                problem = _difference(device)
            except Exception as error:  # whatever a compiler or a driver raises is the finding
                problem = one_line(error)
            found[compiler] = {"device": device, "seconds": time.perf_counter() - began, "problem": problem}
    return found


def _difference(device: str) -> str | None:
    """Returns a sentence if the results of a device's kernels are too far from those of torch operations."""
    import torch

    from evomal.losses import ExpressionLoss, FocalLoss

    drawn = torch.Generator().manual_seed(0)
    logits = torch.randn(_ROWS, _CLASSES, generator=drawn).to(device).requires_grad_()
    target = torch.randint(_CLASSES, (_ROWS,), generator=drawn).to(device)
    # Written out, as the losses themselves would use kernels, and in double precision.
    f, y = logits.double().softmax(1), torch.nn.functional.one_hot(target, _CLASSES)
    for loss, by_torch in (
        (FocalLoss(gamma=2.0), (-y * (1 - f) ** 2 * f.log()).sum(1).mean()),
        (ExpressionLoss("square(sub(y, f))"), ((y - f) ** 2).sum(1).mean()),
    ):
        by_kernels = loss(logits, target)
        for what, found, expected in (
            ("value", by_kernels.detach(), by_torch.detach()),
            ("gradient", _gradient(by_kernels, logits), _gradient(by_torch, logits)),
        ):
            error = float((found - expected).abs().max() / expected.abs().max())
            if not error <= _TOLERANCE:
                return f"the {what} of {type(loss).__name__} differs from torch's by a relative error of {error:.1e}"
    return None


def _gradient(value: Any, logits: Any) -> Any:
    import torch

    return torch.autograd.grad(value, logits, retain_graph=True)[0]


def _data(folder: Any) -> dict[str, Any]:
    from evomal.tasks.datasets import DATASETS, SOURCES, data_folder
    from evomal.tasks.datasets.registry import missing_files

    places = {name: not missing_files(name, folder) for name in DATASETS}
    own = {name: [str(path) for path in missing_files(name, folder)] for name in DATASETS if not SOURCES[name]}
    return {
        "folder": str(data_folder(folder)),
        "found": places,
        "to_be_put": {name: own[name] for name in own if own[name]},
    }


def _missing_libraries() -> dict[str, list[str]]:
    """Returns, for each extra of evomal, its libraries that are not installed."""
    return {
        extra: [name for name in libraries if _version(name) is None]
        for extra, libraries in extras().items()
        if extra not in _NOT_LISTED
    }


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"{name} {version or 'is not installed'}" for name, version in found["versions"].items()]
    lines += [found["platform"], "", "Devices"]
    lines += [f"  {name}: {text}" for name, text in found["devices"].items()]
    lines += ["", "Kernels"]
    for compiler, kernel in found["kernels"].items():
        verdict = kernel["problem"] or f"agree with torch ({kernel['seconds']:.1f} s with compilation)"
        lines.append(f"  {compiler} on {kernel['device']}: {verdict}")
    if not found["kernels"]:
        lines.append("  none: losses are computed by torch operations, which is slower for large outputs")
    lines += ["", f"Data in {found['data']['folder']}"]
    for name, is_there in found["data"]["found"].items():
        put = found["data"]["to_be_put"].get(name)  # of a dataset that has no public source
        remedy = f"evomal data fetch {name}" if put is None else f"put {Path(put[0]).name} into {Path(put[0]).parent}"
        lines.append(f"  {name}: {'found' if is_there else f'missing: {remedy}'}")
    lines += ["", "Extras"]
    for extra, missing in found["extras"].items():
        state, remedy = f"without {', '.join(missing)}:", f"pip install 'evomal[{extra}]'"
        line = f"  {extra}: {f'{state} {remedy}' if missing else 'installed'}"
        if len(line) <= _WIDTH:
            lines.append(line)
        else:
            lines += textwrap.wrap(f"  {extra}: {state}", _WIDTH, subsequent_indent="    ", break_on_hyphens=False)
            lines.append(f"    {remedy}")  # in one line, to be copied
    return lines
