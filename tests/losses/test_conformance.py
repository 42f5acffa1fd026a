"""Every loss in every place where modules of torch are used: a new loss is covered by being listed.

See `every_loss.py` for the list. What takes long is marked, and covers all losses, too.
"""

import copy
import pickle
import shutil

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils.checkpoint import checkpoint

import evomal
from evomal.losses import CATALOGUE, Loss
from tests.losses.distributed import PROCESSES, check
from tests.losses.every_loss import CLASSES, LOSSES, batch, value_and_gradient

EVERY = pytest.mark.parametrize("name", LOSSES)
# Machine code takes long to compile: one loss of each learned class, and two known ones.
LEARNED = {type(loss): name for name, loss in LOSSES.items() if type(loss) not in CATALOGUE.values()}
SAMPLE = ["focal, classification", "huber, regression", *LEARNED.values()]


def sizes(loss):
    """Numbers of samples and classes; a loss with priors has its own number of classes."""
    is_free = loss.classes is None and loss.kind != "regression"
    return [(1, CLASSES), (9, CLASSES), *([(7, 6), (3, 2)] if is_free else [])]


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_every_class_of_losses_is_here():
    public = [getattr(evomal.losses, name) for name in evomal.losses.__all__]
    classes = {one for one in public if isinstance(one, type) and issubclass(one, Loss)} - {Loss}
    assert classes | {*CATALOGUE.values()} == {type(loss) for loss in LOSSES.values()}


@EVERY
def test_the_state_dictionary_restores_a_loss(name):
    loss = LOSSES[name]
    twin, arguments = copy.deepcopy(loss), batch(loss)
    for key, value in twin.state_dict().items():
        value.add_(1.0)
        assert key in loss.state_dict()
    if loss.state_dict():
        assert twin(*arguments) != loss(*arguments)
    model = nn.ModuleDict({"loss": twin})
    model.load_state_dict(nn.ModuleDict({"loss": loss}).state_dict())  # strictly, and with a prefix
    assert twin(*arguments) == loss(*arguments)
    assert pickle.loads(pickle.dumps(loss))(*arguments) == loss(*arguments)
    # Learned numbers, class weights and what follows from priors; expressions without weights have none.
    assert bool(loss.state_dict()) == (name.split(",")[0] in ("expression", "taylor", "neural", "class-weighted-ce"))


@pytest.mark.parametrize("name", ["expression, regression", "neural, regression"])
def test_a_state_dictionary_that_does_not_fit_is_refused(name):
    loss = copy.deepcopy(LOSSES[name])
    with pytest.raises(RuntimeError, match="Missing key"):
        loss.load_state_dict({})
    loss.load_state_dict({}, strict=False)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        loss.load_state_dict({**loss.state_dict(), "other": torch.zeros(1)})
    key = next(iter(loss.state_dict()))
    with pytest.raises(RuntimeError, match=rf"size mismatch for {key}: \(1, 1, 1\) from the checkpoint"):
        loss.load_state_dict({**loss.state_dict(), key: torch.zeros(1, 1, 1)})


@EVERY
def test_autocast_computes_in_single_precision(name):
    loss = LOSSES[name]
    output, target = batch(loss)

    def under_autocast(*arguments):  # as torch recommends, the gradient is computed outside
        with torch.autocast("cpu", torch.bfloat16):
            return loss(*arguments)

    value, gradient = value_and_gradient(under_autocast, output.bfloat16(), target)
    expected, expected_gradient = value_and_gradient(loss, output.bfloat16().float(), target)
    assert value.dtype == torch.float32
    close(value, expected)
    torch.testing.assert_close(gradient.float(), expected_gradient, rtol=2e-2, atol=1e-4)


@EVERY
def test_activation_checkpointing(name):
    loss = LOSSES[name]
    close(
        value_and_gradient(lambda *given: checkpoint(loss, *given, use_reentrant=False), *batch(loss)),
        value_and_gradient(loss, *batch(loss)),
    )


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # about checks of shapes, which a trace leaves out
@EVERY
def test_a_trace_of_torchscript_is_for_every_number_of_samples_and_classes(name):
    loss = LOSSES[name]
    traced = torch.jit.trace(copy.deepcopy(loss), batch(loss), check_trace=False)
    for samples, classes in sizes(loss):
        arguments = batch(loss, samples, classes, seed=1)
        close(value_and_gradient(traced, *arguments), value_and_gradient(loss, *arguments))


@pytest.mark.long
@EVERY
def test_torch_export_with_dynamic_samples_and_classes(name):
    loss = LOSSES[name]
    samples = {0: Dim("samples", min=2)}
    of_output = {**samples, 1: Dim("classes", min=2)} if loss.classes is None and loss.kind != "regression" else samples
    of_target = samples if loss.kind == "classification" else of_output
    exported = torch.export.export(copy.deepcopy(loss), batch(loss), dynamic_shapes=(of_output, of_target)).module()
    for size, classes in sizes(loss)[1:]:
        arguments = batch(loss, size, classes, seed=1)
        close(value_and_gradient(exported, *arguments), value_and_gradient(loss, *arguments))


@pytest.mark.long
@EVERY
def test_torch_compile_in_one_graph(name):
    loss = LOSSES[name]
    torch.compiler.reset()  # all losses share a function, which is compiled a limited number of times
    compiled = torch.compile(copy.deepcopy(loss), fullgraph=True, backend="aot_eager")
    for samples, classes in sizes(loss)[1:]:
        arguments = batch(loss, samples, classes, seed=1)
        close(value_and_gradient(compiled, *arguments), value_and_gradient(loss, *arguments))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("name", SAMPLE)
def test_torch_compile_by_inductor(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    loss = LOSSES[name]
    torch.compiler.reset()
    compiled = torch.compile(copy.deepcopy(loss), fullgraph=True)
    for samples, classes in sizes(loss)[1:]:
        arguments = batch(loss, samples, classes, seed=1)
        close(value_and_gradient(compiled, *arguments), value_and_gradient(loss, *arguments))


@pytest.mark.long
@pytest.mark.parametrize("probabilities", [False, True])
@EVERY
def test_onnx_with_dynamic_samples_and_classes(name, probabilities):
    loss = LOSSES[name]
    if " t," in name or (probabilities and loss.kind != "classification"):
        return  # there is no such graph, which other tests show to be refused
    options = {"probabilities": True} if probabilities else {}
    session = onnxruntime.InferenceSession(evomal.export(loss, to="onnx", **options))
    for samples, classes in sizes(loss):
        output, target = batch(loss, samples, classes, seed=1)
        if probabilities:
            target = 0.7 * torch.nn.functional.one_hot(target, classes) + 0.3 / classes
        (value,) = session.run(None, {"output": output.numpy(), "target": target.numpy()})
        np.testing.assert_allclose(value, loss(output, target), rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_two_processes_have_the_gradients_of_their_mean_loss(tmp_path):
    """DDP and FSDP2 on gloo, all losses in one pair of processes."""
    torch.multiprocessing.spawn(check, (str(tmp_path / "meeting"),), nprocs=PROCESSES)
