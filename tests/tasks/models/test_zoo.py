"""What every model of the catalogue must do: counts, shapes, starts, representation, learning."""

import copy
import inspect
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from evomal.errors import InputError
from evomal.tasks.models import MODELS, make_model

DIGITS, COLOURS = (1, 28, 28), (3, 32, 32)
# Trainable parameters with 10 and 100 outputs (SPEC section 8).
PARAMETERS = {
    "logistic": (7_850, 78_500),
    "mlp": (1_796_010, 1_886_100),
    "lenet5": (44_426, 52_076),
    "alexnet": (23_272_266, 23_640_996),
    "vgg16": (14_728_266, 14_774_436),
    "allcnnc": (1_372_254, 1_389_804),
    "resnet18": (11_173_962, 11_220_132),
    "preresnet101": (42_505_290, 42_689_700),
    "wrn28-10": (36_479_194, 36_536_884),
    "squeezenet": (734_986, 781_156),
    "pyramidnet": (1_772_706, 1_778_556),
}
REPRESENTATION = {
    "logistic": (784,),
    "mlp": (1000,),
    "lenet5": (84,),
    "alexnet": (4096,),
    "vgg16": (512,),
    "allcnnc": (192, 8, 8),
    "resnet18": (512,),
    "preresnet101": (2048,),
    "wrn28-10": (640,),
    "squeezenet": (512, 4, 4),
    "pyramidnet": (64,),
}
SMALLEST = {"lenet5": 16, "alexnet": 15, "vgg16": 32, "squeezenet": 8}
CONVOLUTIONAL = [name for name in PARAMETERS if name not in ("logistic", "mlp")]


def shape_for(name):
    return DIGITS if name in ("logistic", "mlp", "lenet5") else COLOURS


def small_shape(name):
    """The smallest sensible image: 4×4 where the model would take a single pixel."""
    side = SMALLEST.get(name, 4)
    return (3, side, side)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def batch(shape, size=8):
    return torch.randn(size, *shape, generator=seeded(7))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_catalogue_lists_the_eleven():
    assert set(MODELS) == set(PARAMETERS)
    for name, row in MODELS.items():
        assert row.name == name
        assert row.purpose
        assert "\n" not in row.purpose
        assert row.citation[-4:].isdigit() or "20" in row.citation


@pytest.mark.parametrize("name", PARAMETERS)
def test_listed_options_are_those_of_the_constructor(name):
    parameters = inspect.signature(MODELS[name].make).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert defaults == dict(MODELS[name].options)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts(name):
    for outputs, expected in zip((10, 100), PARAMETERS[name], strict=True):
        with torch.device("meta"):
            model = MODELS[name].make(shape_for(name), outputs)
        assert sum(p.numel() for p in model.parameters() if p.requires_grad) == expected


def convolutions(side, *widths, size=3):
    """Multiplications of a chain of convolutions whose outputs are side×side."""
    return side**2 * size**2 * sum(i * o for i, o in itertools.pairwise(widths))


def bottlenecks(side, before, channels, width, blocks):
    """Multiplications of one stage; its first block still sees the larger image."""
    first = convolutions(before, channels, width, size=1) + convolutions(side, channels, 4 * width, size=1)
    rest = (blocks - 1) * convolutions(side, 4 * width, width, size=1)
    each = convolutions(side, width, width) + convolutions(side, width, 4 * width, size=1)
    return first + rest + blocks * each


def fire(side, channels, squeezed, filters):
    return side**2 * squeezed * (channels + filters // 2 + 9 * filters // 2)


def pyramid(alpha=48, stage=18):
    widths = [16 + math.floor(alpha * k / (3 * stage) + 0.5) for k in range(3 * stage + 1)]
    sides = [32] * stage + [16] * stage + [8] * stage
    blocks = zip(sides, itertools.pairwise(widths), strict=True)
    return convolutions(32, 3, 16) + sum(convolutions(side, i, o, o) for side, (i, o) in blocks) + 640


MULTIPLICATIONS = {
    "logistic": 7840,
    "mlp": 784 * 1000 + 1000 * 1000 + 1000 * 10,
    "lenet5": convolutions(24, 1, 6, size=5) + convolutions(8, 6, 16, size=5) + 256 * 120 + 120 * 84 + 84 * 10,
    "alexnet": convolutions(16, 3, 64)
    + convolutions(8, 64, 192)
    + convolutions(4, 192, 384, 256, 256)
    + (1024 + 4096 + 10) * 4096,
    "vgg16": convolutions(32, 3, 64, 64)
    + convolutions(16, 64, 128, 128)
    + convolutions(8, 128, 256, 256, 256)
    + convolutions(4, 256, 512, 512, 512)
    + convolutions(2, 512, 512, 512, 512)
    + 5120,
    "allcnnc": convolutions(32, 3, 96, 96)
    + convolutions(16, 96, 96, 192, 192)
    + convolutions(8, 192, 192, 192)
    + convolutions(8, 192, 192, 10, size=1),
    "resnet18": convolutions(32, 3, 64, 64, 64, 64, 64)
    + sum(
        convolutions(side, width // 2, width, width, width, width) + convolutions(side, width // 2, width, size=1)
        for side, width in ((16, 128), (8, 256), (4, 512))
    )
    + 5120,
    "preresnet101": convolutions(32, 3, 64)
    + bottlenecks(32, 32, 64, 64, 3)
    + bottlenecks(16, 32, 256, 128, 4)
    + bottlenecks(8, 16, 512, 256, 23)
    + bottlenecks(4, 8, 1024, 512, 3)
    + 20480,
    "wrn28-10": convolutions(32, 3, 16)
    + sum(
        convolutions(side, before, *[width] * 8) + convolutions(side, before, width, size=1)
        for side, before, width in ((32, 16, 160), (16, 160, 320), (8, 320, 640))
    )
    + 6400,
    "squeezenet": convolutions(32, 3, 96)
    + sum(fire(16, *sizes) for sizes in ((96, 16, 128), (128, 16, 128), (128, 32, 256)))
    + sum(fire(8, *sizes) for sizes in ((256, 32, 256), (256, 48, 384), (384, 48, 384), (384, 64, 512)))
    + fire(4, 512, 64, 512)
    + convolutions(4, 512, 10, size=1),
    "pyramidnet": pyramid(),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_multiplications_of_one_image(name):
    """Parameters do not show strides, paddings or poolings; multiplications do."""
    with torch.device("meta"):
        model = MODELS[name].make(shape_for(name), 10).eval()
        image = torch.empty(1, *shape_for(name))
    with FlopCounterMode(display=False) as counter:
        model(image)
    assert counter.get_total_flops() == 2 * MULTIPLICATIONS[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_outputs_follow_the_representation(name):
    model = make_model(name, shape_for(name), 7).eval()
    seen = []
    handle = model.features.register_forward_hook(lambda *hooked: seen.append(hooked[2]))
    with torch.no_grad():
        outputs = model(batch(shape_for(name), 2))
        handle.remove()
        assert outputs.shape == (2, 7)
        assert outputs.isfinite().all()
        assert seen[0].shape == (2, *REPRESENTATION[name])
        assert torch.equal(model.head(seen[0]), outputs)
    weighted = [m for m in model.head.modules() if isinstance(m, (nn.Linear, nn.Conv2d))]
    assert len(weighted) == 1


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_seed_is_a_start(name):
    shape, before = small_shape(name), torch.get_rng_state()
    model = make_model(name, shape, 5, generator=seeded(1))
    require_deviations(name, model)
    first = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for tensor in model.state_dict().values():  # whatever reset left alone would stay 77
            tensor.fill_(77)
    model.reset(seeded(1))
    assert all(torch.equal(first[key], tensor) for key, tensor in model.state_dict().items())
    model.eval()
    twin = make_model(name, shape, 5, generator=seeded(1)).eval()
    with torch.no_grad():
        assert torch.equal(model(batch(shape)), twin(batch(shape)))
    twin.reset(seeded(2))
    weights = [key for key, tensor in first.items() if tensor.dim() > 1]
    assert not any(torch.equal(first[key], twin.state_dict()[key]) for key in weights)
    assert torch.equal(torch.get_rng_state(), before)  # the global random state is left alone


def require_deviations(name, model):
    """The weights of a start vary as much as they should."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)) and module.weight.numel() > 20_000:
            fan_in, fan_out = (module.weight[0].numel(), module.weight.numel() // module.weight.shape[1])
            variance = 2 / (fan_in + fan_out) if name in ("logistic", "mlp", "lenet5") else 2 / fan_in
            assert module.weight.var().item() == pytest.approx(variance, rel=0.1)
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.running_var == 1).all()
            assert not any(tensor.any() for tensor in (module.bias, module.running_mean, module.num_batches_tracked))
        elif getattr(module, "bias", None) is not None:
            assert not module.bias.any()


def test_without_a_generator_the_seed_is_zero():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    unseeded = make_model("lenet5", DIGITS, 10)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(unseeded.head.weight, make_model("lenet5", DIGITS, 10, generator=seeded(0)).head.weight)


def test_a_double_model_starts_from_the_same_numbers():
    single, double = make_model("lenet5", DIGITS, 10), make_model("lenet5", DIGITS, 10).double()
    double.reset(seeded(4))
    single.reset(seeded(4))
    assert torch.equal(double.head.weight, single.head.weight.double())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", ["lenet5", "resnet18"])
def test_a_model_on_cuda_starts_from_the_same_numbers(name):
    on_cpu, on_gpu = make_model(name, COLOURS, 10), make_model(name, COLOURS, 10).cuda()
    on_cpu.reset(seeded(4))
    on_gpu.reset(seeded(4))
    for key, tensor in on_cpu.state_dict().items():
        assert torch.equal(on_gpu.state_dict()[key].cpu(), tensor)


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_the_smallest_image_and_odd_ones(name):
    side = SMALLEST.get(name, 1)
    for shape in ((1, side, side), (2, side + 5, side + 2)):
        model = make_model(name, shape, 3).eval()
        with torch.no_grad():
            assert model(batch(shape, 2)).shape == (2, 3)
    if side > 1:
        with pytest.raises(
            InputError, match=f"^{name} takes images of at least {side}×{side} pixels but got 40×{side - 1}$"
        ):
            make_model(name, (3, 40, side - 1), 10)


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_tables_are_not_images(name):
    with pytest.raises(InputError, match=rf"^{name} takes images .* got inputs of shape \(13,\)$"):
        make_model(name, (13,), 1)


@pytest.mark.parametrize("name", ["logistic", "mlp:hidden=32"])
@pytest.mark.parametrize("shape", [(13,), (3, 8, 5), (6, 2)])
def test_plain_models_take_any_shape(name, shape):
    assert make_model(name, shape, 1)(batch(shape)).shape == (8, 1)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_few_steps_lower_the_loss(name):
    model = make_model(name, small_shape(name), 10)
    images, labels = batch(small_shape(name)), torch.arange(8)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # dropout
        for _ in range(9 if name == "lenet5" else 5):
            loss = F.cross_entropy(model(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    # First against last: on the way alexnet, without batch norm, overshoots, and dropout is noisy.
    assert losses[-1] < 0.99 * losses[0]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
