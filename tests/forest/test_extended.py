"""Trees of the extended space: every backend against `ExpressionLoss`, and what a forest refuses."""

import pytest
import torch

from evomal.errors import InputError
from evomal.expression import Expression, ramped_half_and_half
from evomal.expression.operators import Space
from evomal.forest import Forest, Link, Programs, numba_backend, torch_backend
from evomal.forest.codes import Use
from evomal.forest.programs import FILLER
from evomal.randomness import generator
from tests.forest.agreement import KINDS, Case, assert_agrees, case
from tests.processes import check_in_interpreter

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
LINKS = [(Link.IDENTITY, 1), (Link.SIGMOID, 3), (Link.SOFTMAX, 10)]


def known(link: Link) -> list[Expression]:
    """Known losses, each terminal alone, several of them together, and one tree of the paper."""
    if link is Link.IDENTITY:
        texts = ("mul(t, exp(sub(f, y)))", "pow(sub(y, f), 1)", "pow(add(y, 1), f)", "pow(f, mul(y, t))")
    else:
        texts = (
            "mul(y, logp)", "mul(y, blogp)", "mul(y, margin)", "mul(y, sub(prior, f))", "exp(mul(margin, sub(y, 1)))",
            "mul(y, sub(1, pow(f, 1)))", "pow(add(y, f), logp)",
            "add(mul(f, logp), mul(y, add(blogp, mul(t, margin))))",
        )  # fmt: skip
    return [Expression.parse(text) for text in (*texts, "square(sub(y, f))")]


@pytest.mark.parametrize("backend", [torch_backend, numba_backend], ids=["torch", "numba"])
@pytest.mark.parametrize(("link", "outputs"), LINKS)
def test_known_losses_over_several_blocks_and_strips(backend, link, outputs):
    found = case(known(link), link, samples=150, outputs=outputs, is_extended=True)
    assert_agrees(found, backend, torch.float64)


@pytest.mark.parametrize(("link", "outputs"), LINKS)
@pytest.mark.parametrize("softplus", [False, True])
def test_a_descent_takes_the_steps_of_adam(link, outputs, softplus):
    found = case(known(link), link, samples=20, outputs=outputs, softplus=softplus, is_extended=True)
    options = {"steps": 8, "lr": 0.05, "scale": 0.1}
    expected = found.descended(torch_backend, **options)
    torch.testing.assert_close(found.descended(numba_backend, **options), expected, rtol=1e-9, atol=1e-9)


def test_log_probabilities_are_exact_where_probabilities_vanish():
    """log(f + ε) ends at −16 and its gradient is 0 there; cross-entropy goes on, with a gradient of −1."""
    trees = [Expression.parse("mul(-1, mul(y, logp))"), Expression.parse("mul(-1, mul(y, log(f)))")]
    outputs = torch.tensor([[0.0, 200.0, 0.0]])
    for backend in ("torch", "numba"):
        forest = Forest(trees, kind="classification", outputs=3, backend=backend)
        weights = torch.ones(2, forest.width)
        losses, gradients = forest.gradients(outputs, torch.tensor([0]), weights)
        assert losses[0] == 200
        assert gradients[0, 0].tolist() == [-1, 1, 0]
        assert losses[1] == pytest.approx(16.118, abs=1e-3)
        assert gradients[1, 0].tolist() == [0, 0, 0]


def test_what_a_tree_uses():
    uses = {
        "square(sub(y, f))": Use(0),
        "mul(y, mul(f, prior))": Use.CONSTANT,
        "mul(y, logp)": Use.OWN,
        "mul(y, blogp)": Use.BALANCED,
        "mul(y, mul(f, margin))": Use.OWN | Use.MARGIN,
        "mul(y, mul(t, add(margin, blogp)))": Use.BALANCED | Use.MARGIN | Use.CONSTANT,
    }
    programs = Programs.of([Expression.parse(text) for text in uses])
    assert programs.uses.tolist() == [int(use) for use in uses.values()]


def test_a_tree_of_the_paper_has_the_same_bits_among_extended_ones():
    trees = ramped_half_and_half(10, generator=generator(0, "bits"))
    found = [
        case([*trees, *others], Link.SOFTMAX, samples=40, outputs=5, seed=3) for others in ([], known(Link.SOFTMAX))
    ]
    outputs = found[0].outputs[0]
    results = [
        (*numba_backend.gradients(each.programs, each.weights, outputs, each.targets, each.link, softplus=False),
         numba_backend.mixed(each.programs, each.weights, outputs, each.targets,
                             found[1].tangents[: len(each.trees)], each.link, softplus=False))
        for each in (given.to(dtype=torch.float32) for given in found)
    ]  # fmt: skip
    for alone, among in zip(*results, strict=True):
        assert torch.equal(alone, among[: len(trees), ..., : alone.shape[-1]])


def test_progress_is_read_at_every_call():
    forest = Forest([Expression.parse("mul(t, square(sub(y, f)))")], kind="regression", outputs=1)
    arguments = torch.tensor([[3.0]]), torch.tensor([1.0]), torch.ones(1, forest.width)
    found = []
    for progress in (0.0, 0.25, 1.0):
        forest.set_progress(progress)
        found.append(float(forest.losses(*arguments)))
    assert found == [0, 1, 4]


@pytest.mark.parametrize("outputs", [1, 3])
def test_without_priors_classes_have_equal_shares(outputs):
    tree = Expression.parse("mul(y, add(prior, sub(blogp, logp)))")
    forests = [
        Forest([tree], kind="classification", outputs=outputs, priors=priors)
        for priors in (None, [1 / max(2, outputs)] * max(2, outputs))
    ]
    arguments = torch.randn(4, outputs), torch.randint(max(2, outputs), (4,)), torch.ones(1, 16)
    assert torch.equal(*(forest.losses(*arguments) for forest in forests))


def test_what_a_forest_refuses():
    with pytest.raises(InputError, match="logp is a terminal of classification, but the loss is for regression"):
        Forest([Expression.parse("mul(y, logp)")], kind="regression", outputs=1)
    with pytest.raises(InputError, match="priors must have one entry for each of 2 classes but got 3"):
        Forest([FILLER], kind="classification", outputs=2, priors=[0.2, 0.3, 0.5])
    with pytest.raises(InputError, match=r"priors must add up to 1 but add up to 0\.5"):
        Forest([FILLER], kind="classification", outputs=2, priors=[0.2, 0.3])
    forest = Forest([FILLER], kind="classification", outputs=2)
    with pytest.raises(InputError, match="not extended takes expressions of the paper's tokens only"):
        forest.replace([Expression.parse("mul(y, logp)")])
    Forest([FILLER], kind="classification", outputs=2, extended=True).replace([Expression.parse("mul(y, logp)")])


def triton_cases(samples: int, device: str | None = None) -> list[Case]:
    found = []
    drawn, shapes = (2, LINKS[:2]) if device is None else (6, LINKS)  # an interpreted node takes milliseconds
    for link, outputs in [*shapes, (Link.SOFTMAX, 3)]:
        space = Space.of("extended", kind=KINDS[link])
        trees = [*known(link), *ramped_half_and_half(drawn, space=space, generator=generator(1, "triton", int(link)))]
        given = case(trees, link, samples=samples, outputs=outputs, softplus=outputs == 3, is_extended=True)
        found.append(given.to(dtype=torch.float32, device=device))
    return found


def assert_triton_agrees(samples: int = 3, device: str | None = None) -> None:

    for given in triton_cases(samples, device):
        on_cpu = given if device is None else given.to(device="cpu")
        exact = on_cpu.to(dtype=torch.float64)
        for name, (found, expected, single) in {
            "losses and gradients": tuple(each.gradients(backend) for each, backend in _three(given, exact, on_cpu)),
            "mixed": tuple((each.mixed(backend),) for each, backend in _three(given, exact, on_cpu)),
            "descended": tuple(
                (each.descended(backend, steps=2, lr=0.01, scale=0.1),)
                for each, backend in _three(given, exact, on_cpu)
            ),
        }.items():
            for part, true, plain in zip(found, expected, single, strict=True):
                for tree, text in enumerate(given.trees):
                    allowed = max(
                        1e-3 * float(true[tree].abs().max()), 10 * float((plain[tree] - true[tree]).abs().max())
                    )
                    if not torch.isfinite(plain[tree]).all():
                        continue  # single precision ends there
                    difference = float((part[tree].cpu().double() - true[tree]).abs().max())
                    assert difference <= allowed + 1e-6, f"{name} of {text}: {difference} > {allowed}"


def _three(given: Case, exact: Case, on_cpu: Case):
    from evomal.forest import triton_backend

    return (given, triton_backend), (exact, torch_backend), (on_cpu, torch_backend)


def test_the_kernels_in_the_interpreter():
    program = "from tests.forest.test_extended import assert_triton_agrees\nassert_triton_agrees()"
    check_in_interpreter(program)


@needs_cuda
def test_on_cuda():
    assert_triton_agrees(130, "cuda")


@needs_cuda
@pytest.mark.parametrize("outputs", [1000, 4096])
def test_on_cuda_with_many_classes(outputs):
    trees = known(Link.SOFTMAX)
    forests = [
        Forest(trees, kind="classification", outputs=outputs, device="cuda", backend=backend)
        for backend in ("triton", "torch")
    ]
    rng = torch.Generator().manual_seed(0)
    z, u = (torch.randn(len(trees), 5, outputs, generator=rng).cuda() for _ in range(2))
    y, weights = torch.randint(outputs, (5,), generator=rng).cuda(), torch.ones(len(trees), 16, device="cuda")
    for found, expected in zip(*(forest.gradients(z, y, weights) for forest in forests), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    mixed = [forest.mixed_gradients(z, y, u, weights) for forest in forests]
    torch.testing.assert_close(*mixed, rtol=1e-3, atol=1e-3)


@needs_cuda
def test_a_captured_launch_serves_other_trees_and_other_progress_on_cuda():
    trees = known(Link.SOFTMAX)
    forest = Forest(
        trees[:2], kind="classification", outputs=4, device="cuda", extended=True, priors=[0.1, 0.2, 0.3, 0.4]
    )
    z, y, weights = torch.randn(2, 6, 4).cuda(), torch.randint(4, (6,)).cuda(), torch.ones(2, 16, device="cuda")
    forest.gradients(z, y, weights)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = forest.gradients(z, y, weights)
    forest.replace(trees[5:8:2])
    forest.set_progress(0.5)
    graph.replay()
    for found, expected in zip(captured, forest.gradients(z, y, weights), strict=True):
        assert torch.equal(found, expected)
