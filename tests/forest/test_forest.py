"""A forest against as many losses, each alone."""

import pytest
import torch

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.expression.generate import ramped_half_and_half
from evomal.forest import Forest, numba_backend, torch_backend
from evomal.losses import ExpressionLoss
from evomal.randomness import generator
from tests.forest.agreement import derivative

TREES = ramped_half_and_half(6, generator=generator(1, "forest"))
OTHERS = ramped_half_and_half(6, generator=generator(2, "forest"))
SHAPES = [("regression", 1), ("regression", 3), ("classification", 1), ("classification", 4), ("multilabel", 3)]
SAMPLES = 11

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"))]


def question(kind, outputs, *, dtype=torch.float64, device="cpu", activation="identity", backend="auto", trees=TREES):
    """A forest, outputs, a task's targets, tangents, and weights around one."""
    rng = torch.Generator().manual_seed(outputs)
    forest = Forest(trees, kind=kind, outputs=outputs, activation=activation, device=device, backend=backend)
    z = torch.randn(len(trees), SAMPLES, outputs, generator=rng, dtype=torch.float64)
    tangents = torch.randn(z.shape, generator=rng, dtype=torch.float64)
    if kind == "regression":
        targets = torch.randn(SAMPLES, outputs, generator=rng, dtype=torch.float64)
    elif kind == "multilabel":
        targets = torch.randint(2, (SAMPLES, outputs), generator=rng).double()
    else:
        targets = torch.randint(max(2, outputs), (SAMPLES,), generator=rng)
    weights = 1 + 0.1 * torch.randn(forest.count, forest.width, generator=rng, dtype=torch.float64)
    weights = torch.where(forest.programs.edges().cpu(), weights, 1.0)
    floats = [tensor.to(device, dtype) for tensor in (z, tangents, weights)]
    return forest, floats[0], targets.to(device, dtype if targets.is_floating_point() else None), *floats[1:]


def alone(forest, tree, weights, expression=None):
    expression = expression or TREES[tree]
    return ExpressionLoss(expression, weights[: expression.size][1:], kind=forest.kind, activation=forest.activation)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", ["identity", "softplus"])
@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize(("kind", "outputs"), SHAPES)
def test_everything_is_as_of_the_loss_alone(kind, outputs, backend, activation, device):
    forest, z, targets, tangents, weights = question(
        kind, outputs, backend=backend, activation=activation, device=device
    )
    losses, gradients = forest.gradients(z, targets, weights)
    mixed = forest.mixed_gradients(z, targets, tangents, weights)
    assert torch.equal(forest.losses(z, targets, weights), losses)
    descended = forest.descended(z, targets, weights, steps=8, lr=0.05)
    for tree in range(forest.count):
        edges = weights[tree].clone().requires_grad_()
        variable = z[tree].clone().requires_grad_()
        loss = alone(forest, tree, edges)
        given = targets if kind != "classification" or outputs > 1 else targets.unsqueeze(1)
        value = loss(variable, given)
        gradient = derivative(value, variable, create_graph=True)
        torch.testing.assert_close(losses[tree], value.detach(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(gradients[tree], gradient.detach(), rtol=1e-9, atol=1e-10)
        crossed = derivative((tangents[tree] * gradient).sum(), edges)
        torch.testing.assert_close(mixed[tree], crossed, rtol=1e-8, atol=1e-8)
        optimizer = torch.optim.Adam([variable], lr=0.05)
        for _ in range(8):
            variable.grad = derivative(loss(variable, given), variable)
            optimizer.step()
        # A gradient of rounding errors alone still makes Adam take a step.
        certain = gradient.detach().abs() > 1e-9
        torch.testing.assert_close(descended[tree][certain], variable.detach()[certain], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "outputs"), SHAPES)
def test_shared_outputs_are_the_same_for_every_tree(kind, outputs):
    forest, z, targets, tangents, weights = question(kind, outputs)
    shared, copied = z[0], z[:1].expand_as(z)
    for one, other in zip(
        forest.gradients(shared, targets, weights), forest.gradients(copied, targets, weights), strict=True
    ):
        assert torch.equal(one, other)
    assert torch.equal(
        forest.mixed_gradients(shared, targets, tangents, weights),
        forest.mixed_gradients(copied, targets, tangents, weights),
    )
    assert torch.equal(
        forest.descended(shared, targets, weights, steps=3, lr=0.1),
        forest.descended(copied, targets, weights, steps=3, lr=0.1),
    )


@pytest.mark.parametrize(("kind", "outputs"), SHAPES)
def test_gradient_norms_are_of_each_sample_alone(kind, outputs):
    forest, z, targets, _, weights = question(kind, outputs)
    norms = forest.gradient_norms(z, targets, weights)
    assert norms.shape == (forest.count, SAMPLES)
    for sample in (0, SAMPLES - 1):
        place = slice(sample, sample + 1)
        _, own = forest.gradients(z[:, place].contiguous(), targets[place], weights)
        torch.testing.assert_close(norms[:, sample], own.flatten(1).norm(dim=1), rtol=1e-12, atol=1e-14)


def test_other_trees_in_the_same_memory():
    forest, z, targets, tangents, weights = question("classification", 4)
    places = [tensor.data_ptr() for tensor in (forest.programs.nodes, forest.programs.sizes)]
    others = [*OTHERS[:5], Expression.parse("sub(y, f)")]
    weights.fill_(1.0)
    forest.replace(others)
    assert places == [tensor.data_ptr() for tensor in (forest.programs.nodes, forest.programs.sizes)]
    for tree, expression in enumerate(others):
        value = alone(forest, tree, weights[tree], expression)(z[tree], targets)
        torch.testing.assert_close(forest.losses(z, targets, weights)[tree], value, rtol=1e-10, atol=1e-12)
    assert not forest.mixed_gradients(z, targets, tangents, weights)[5, 3:].any()


def test_what_cannot_take_the_others_places():
    forest = Forest(TREES, kind="regression", outputs=1, width=32)
    assert forest.width == 32
    with pytest.raises(InputError, match="a forest of 6 expressions has no room for 7"):
        forest.replace([*OTHERS[:6], OTHERS[0]])
    with pytest.raises(InputError, match="width must be at least 65, the size of the largest expression, but got 32"):
        forest.replace([Expression(("sub", "y") * 32 + ("f",))] * 6)


@pytest.mark.parametrize(
    ("kind", "outputs", "targets", "expected"),
    [
        ("classification", 3, torch.tensor([2, 0]), [[0, 0, 1], [1, 0, 0]]),
        ("classification", 3, torch.tensor([2], dtype=torch.int32), [[0, 0, 1]]),
        ("classification", 1, torch.tensor([1, 0]), [[1], [0]]),
        ("classification", 1, torch.tensor([[1.0], [0.0]]), [[1], [0]]),
        ("multilabel", 2, torch.tensor([[1, 0]]), [[1, 0]]),
        ("regression", 1, torch.tensor([0.5, 2.0]), [[0.5], [2]]),
        ("regression", 2, torch.tensor([[0.5, 2.0]]), [[0.5, 2]]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_dense_targets(kind, outputs, targets, expected, dtype):
    dense = Forest(TREES[:1], kind=kind, outputs=outputs).dense_targets(targets, dtype)
    assert dense.dtype == dtype
    assert dense.tolist() == expected


def test_which_backend_computes(monkeypatch):
    called = []
    for module in (torch_backend, numba_backend):
        original = module.gradients
        monkeypatch.setattr(
            module, "gradients", lambda *a, of=module, do=original, **k: (called.append(of), do(*a, **k))[1]
        )
    for backend, dtype in (("auto", torch.float32), ("auto", torch.float64), ("torch", torch.float32)):
        forest, z, targets, _, weights = question("classification", 3, backend=backend, dtype=dtype)
        forest.losses(z, targets, weights)
    assert called == [numba_backend, numba_backend, torch_backend]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_single_precision_on_cuda_agrees_with_double():
    forest, z, targets, tangents, weights = question("classification", 4, device="cuda")
    exact = forest.gradients(z, targets, weights)[1], forest.mixed_gradients(z, targets, tangents, weights)
    z, tangents, weights = z.float(), tangents.float(), weights.float()
    single = forest.gradients(z, targets, weights)[1], forest.mixed_gradients(z, targets, tangents, weights)
    for one, other in zip(single, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3)


def test_an_empty_batch():
    forest = Forest(TREES, kind="regression", outputs=2)
    weights = torch.ones(forest.count, forest.width)
    losses, gradients = forest.gradients(torch.empty(0, 2), torch.empty(0, 2), weights)
    assert losses.tolist() == [0] * 6
    assert gradients.shape == (6, 0, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "cuda"}, "backend must be one of auto, torch, numba, triton but got 'cuda'"),
        ({"kind": "ranking"}, "kind must be one of classification, regression, multilabel but got 'ranking'"),
        ({"activation": "relu"}, "activation must be one of identity, softplus but got 'relu'"),
        ({"outputs": 0}, "outputs must be at least 1 but got 0"),
        ({"device": "meta", "backend": "numba"}, "backend 'numba' is for the CPU but the device is meta"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        Forest(TREES, **{"kind": "regression", "outputs": 1, **options})


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("outputs", torch.zeros(5, 11, 4), r"outputs must be .* \[6, B, 4\] or \[B, 4\] .* \[5, 11, 4\]"),
        ("outputs", torch.zeros(11, 3), r"outputs must be .* \[11, 3\]"),
        ("outputs", torch.zeros(11, 4, dtype=torch.float16), r"float32 or float64 .* but got torch.float16"),
        ("targets", torch.zeros(11), r"targets must be class indices \[B\] but got torch.float32 of shape \[11\]"),
        ("targets", torch.full((11, 4), 0.25), r"targets must be class indices \[B\] but got torch.float32 of shape"),
        ("targets", torch.zeros(10, dtype=torch.long), "outputs have 11 samples but targets 10"),
        ("weights", torch.ones(6, 3), r"weights must be torch.float32 of shape \[6, 32\] but got .* \[6, 3\]"),
        ("weights", torch.ones(6, 32, dtype=torch.float64), "weights must be torch.float32 .* got torch.float64"),
        ("tangents", torch.ones(11, 4), r"tangents must be torch.float32 of shape \[6, 11, 4\] but got"),
        ("targets", torch.zeros(11, dtype=torch.long, device="meta"), "targets must be on cpu but got meta"),
    ],
)
def test_bad_tensors(name, wrong, message):
    forest = Forest(TREES, kind="classification", outputs=4, width=32)
    given = {
        "outputs": torch.zeros(6, 11, 4), "targets": torch.zeros(11, dtype=torch.long),
        "tangents": torch.zeros(6, 11, 4), "weights": torch.ones(6, 32),
    }  # fmt: skip
    with pytest.raises(InputError, match=message):
        forest.mixed_gradients(**{**given, name: wrong})
