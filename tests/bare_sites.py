"""Folders of packages with torch and NumPy only, and what losses are used for there."""

import importlib.metadata
import re
from pathlib import Path

USE_OF_LOSSES = """
import sys, time
import torch
began = time.process_time()  # which a busy machine does not change
import evomal
import evomal.losses
seconds = time.process_time() - began

loss = evomal.ExpressionLoss("abs(log(mul(y, f)))", [1.1, 0.9, 1.0, 1.0])
evomal.save_loss(loss, "loss.json")
loss = evomal.load_loss("loss.json")
torch.manual_seed(0)
for criterion in (loss, evomal.losses.FocalLoss(), evomal.losses.named_loss("gce")):
    model = torch.nn.Linear(64, 1200)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(80, 64), torch.randint(3, (80,))  # enough outputs for kernels, where there are some
    values = []
    for _ in range(30):
        optimizer.zero_grad()
        value = criterion(model(x), y)
        value.backward()
        optimizer.step()
        values.append(float(value.detach()))
    assert values[-1] < values[0], values
regression = evomal.losses.HuberLoss()
assert float(regression(torch.tensor([3.0]), torch.tensor([3.5]))) == 0.125
source = evomal.export(loss, to="python")
scope = {}
exec(source, scope)
output = model(x).detach()
assert torch.allclose(scope["LearnedLoss"]()(output, y), loss(output, y))
assert "log" in evomal.export(loss, to="latex") and "log" in loss.formula()
"""


def closure(*names):
    """The installed distributions that these need, with these."""
    found = {}
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # for another platform
            continue
        needed = [line for line in found[name].requires or () if "extra ==" not in line]
        waiting += [re.match(r"[\w.-]+", line)[0].lower() for line in needed]
    return found


def linked_site(folder):
    """Links torch, NumPy, what these need, and the metadata of evomal into a folder of packages; returns it."""
    for distribution in [*closure("torch", "numpy").values(), importlib.metadata.distribution("evomal")]:
        for top in {file.parts[0] for file in distribution.files or ()}:
            place = Path(distribution.locate_file(top))
            if top not in ("..", "__pycache__", "evomal") and place.exists() and not (folder / top).exists():
                (folder / top).symlink_to(place)
    for left in folder.glob("*evomal*.pth"):  # which would lead to the sources
        left.unlink()
    return folder
