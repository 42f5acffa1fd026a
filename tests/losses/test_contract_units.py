"""A regression loss with units takes raw outputs and targets: by itself, from a file, and exported."""

import ast
import json

import numpy as np
import onnxruntime
import pytest
import sympy
import torch

import evomal
from evomal.errors import InputError
from evomal.losses import ExpressionLoss, FocalLoss, HuberLoss, NeuralLoss, TaylorLoss, load_loss, save_loss
from evomal.losses import starting_layers as layers
from evomal.losses.files import loss_document
from evomal.units import Units

ONE, TWO = Units(152.1, 77.0), Units((10.0, -3.0), (2.0, 0.5))
LOSSES = {
    "expression": lambda: ExpressionLoss("square(aq(sub(y, f), y))", [1.5, 1.0, 0.9, 1.1, 1.0], kind="regression"),
    "softplus": lambda: ExpressionLoss("mul(y, sub(f, y))", kind="regression", activation="softplus"),
    "taylor": lambda: TaylorLoss([0.1, 0.2, 0.3, -0.4, 0.5, -0.6, 0.7, -0.8], kind="regression"),
    "neural": lambda: NeuralLoss(layers(hidden=6, generator=torch.Generator().manual_seed(0)), kind="regression"),
    "huber": lambda: HuberLoss(0.7),
}
UNITS = {"one": ONE, "two": TWO}


def batch(units, *, dtype=torch.float64):
    """Outputs and targets in raw units."""
    rng = torch.Generator().manual_seed(0)
    shape = (6, 1) if units.outputs is None else (6, units.outputs)
    return tuple(units.raw(torch.randn(shape, generator=rng, dtype=torch.float64)).to(dtype) for _ in range(2))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("units", UNITS.values(), ids=UNITS)
def test_raw_values_cost_what_the_standardised_ones_do(name, units):
    plain = LOSSES[name]()
    loss = plain.in_units(units)
    output, target = batch(units)
    f, y = units.standardised(output).requires_grad_(), units.standardised(target)
    raw = output.clone().requires_grad_()
    value, expected = loss(raw, target), plain(f, y)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    (gradient,), (standardised,) = torch.autograd.grad(value, raw), torch.autograd.grad(expected, f)
    scale = torch.tensor(units.scale, dtype=torch.float64)
    torch.testing.assert_close(gradient, standardised / scale, rtol=1e-10, atol=1e-14)  # the chain rule


def test_a_loss_in_other_units_is_another_and_shares_its_weights():
    weights = torch.nn.Parameter(torch.ones(3))
    plain = ExpressionLoss("square(sub(y, f))", weights, kind="regression", reduction="sum")
    loss = plain.in_units(ONE)
    assert (plain.units, loss.units, loss.in_units(None).units) == (None, ONE, None)
    assert plain.in_units(None) is plain
    assert [parameter is weights for parameter in loss.parameters()] == [True]
    assert (loss.reduction, loss.expression) == ("sum", plain.expression)
    assert repr(loss) == repr(plain)[:-1] + ", units: mean 152.1, scale 77)"
    loss.register_buffer("other", torch.zeros(1))
    assert not hasattr(plain, "other")
    sentence = r"^units must be None for a classification loss: only regression targets have units$"
    with pytest.raises(InputError, match=sentence):
        FocalLoss().in_units(ONE)
    with pytest.raises(InputError, match="the last dimension of values must be 2, one for each output of the units"):
        plain.in_units(TWO)(torch.zeros(3, 1), torch.zeros(3, 1))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("units", UNITS.values(), ids=UNITS)
def test_files_keep_the_units(name, units, tmp_path):
    loss, path = LOSSES[name]().in_units(units), tmp_path / "loss.json"
    save_loss(loss, path)
    document = json.loads(path.read_text())
    assert document["version"] == 1
    assert (document["target_mean"], document["target_scale"]) == tuple(
        json.loads(json.dumps(values)) for values in (units.mean, units.scale)
    )
    again = load_loss(path)
    assert again.units == units
    assert torch.equal(again(*batch(units)), loss(*batch(units)))
    assert loss_document(again) == loss_document(loss)
    save_loss(loss.in_units(None), path)
    assert "target_mean" not in path.read_text()
    assert load_loss(path).units is None


GOOD = {"format": "evomal-loss", "version": 1, "kind": "expression", "task": "regression", "expression": "mul(y, f)"}


@pytest.mark.parametrize(
    ("keys", "units"),
    [
        ({}, None),
        ({"target_mean": 0, "target_scale": 1}, None),
        ({"target_mean": 5}, Units(5.0, 1.0)),
        ({"target_scale": 2.5}, Units(0.0, 2.5)),
        ({"target_mean": [1, 2], "target_scale": [3, 4.5]}, Units((1.0, 2.0), (3.0, 4.5))),
    ],
)
def test_what_a_file_may_say(keys, units, tmp_path):
    path = tmp_path / "loss.json"
    path.write_text(json.dumps({**GOOD, **keys}))
    assert load_loss(path).units == units


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"target_scale": 0}, "target_scale must be more than 0 but got 0"),
        ({"target_mean": 14.8, "target_scale": None}, "target_scale must be a finite number, or one for each output"),
        ({"target_scale": "77"}, "target_scale must be a finite number, or one for each output, but got '77'"),
        ({"target_mean": {}}, "target_mean must be a finite number, or one for each output, but got {}"),
        ({"target_mean": 1, "task": "multilabel"}, "units must be None for a multilabel loss"),
        ({"target_mean": [1, 2], "target_scale": [1, 2, 3]}, "target_scale must have as many numbers as the mean, 2"),
    ],
)
def test_what_a_file_may_not_say(keys, sentence, tmp_path):
    path = tmp_path / "loss.json"
    path.write_text(json.dumps({**GOOD, **keys}))
    with pytest.raises(InputError) as caught:
        load_loss(path)
    assert f"loss.json: {sentence}" in str(caught.value)


# An export to ONNX takes a second, and units are in front of the loss, whichever it is.
EXPORTS = [
    *((to, units, name) for to in ("python", "jax") for units in UNITS for name in LOSSES),
    ("onnx", "one", "huber"),
    ("onnx", "two", "expression"),
]


@pytest.mark.parametrize(("to", "unit", "name"), EXPORTS)
def test_exports_carry_the_units(to, unit, name):
    units = UNITS[unit]
    loss = LOSSES[name]().in_units(units)
    output, target = batch(units, dtype=torch.float32)
    exported = evomal.export(loss, to=to)
    if to == "onnx":
        if units.outputs is None:
            output, target = output[:, 0], target[:, 0]
        session = onnxruntime.InferenceSession(exported)
        (value,) = session.run(None, {"output": output.numpy(), "target": target.numpy()})
    else:
        docstring = ast.get_docstring(ast.parse(exported))
        assert f"Learned in standardised units: {units}." in docstring
        assert "It takes raw outputs and raw targets and standardises both." in docstring
        scope: dict = {}
        exec(compile(exported, "exported.py", "exec"), scope)
        if to == "python":
            value = scope["LearnedLoss"]()(output, target)
        else:
            import jax.numpy as jnp

            value = scope["loss"](jnp.asarray(output.numpy()), jnp.asarray(target.numpy()))
        if units.outputs:
            with pytest.raises(ValueError, match="there must be 2 outputs but the shape is"):
                scope["standardised"](output[:, :1] if to == "python" else jnp.asarray(output[:, :1].numpy()))
    np.testing.assert_allclose(np.asarray(value), loss(output, target), rtol=1e-4, atol=1e-5)


def test_formulas_name_the_units():
    loss = ExpressionLoss("square(sub(y, f))", [2.0, 1.0, 1.0], kind="regression").in_units(ONE)
    assert evomal.export(loss, to="latex") == (
        r"(2 \cdot (y - f_{\theta}(x)))^2 \quad \text{with } y \leftarrow \frac{y - \mu}{\sigma},\; "
        r"f_{\theta}(x) \leftarrow \frac{f_{\theta}(x) - \mu}{\sigma},\; \mu = 152.1,\; \sigma = 77"
    )
    assert evomal.export(HuberLoss().in_units(TWO), to="latex").endswith(
        r"f \leftarrow \frac{f - \mu}{\sigma},\; \mu = \left(10, -3\right),\; \sigma = \left(2, 0.5\right)"
    )
    y, f = sympy.symbols("y f", real=True)
    form = evomal.export(loss, to="sympy")
    at = {y: 100.0, f: 200.0}
    expected = loss(torch.tensor([200.0], dtype=torch.float64), torch.tensor([100.0], dtype=torch.float64))
    assert float(form.subs(at)) == pytest.approx(expected.item(), rel=1e-12)
    several = evomal.export(loss.in_units(TWO), to="sympy")
    assert {symbol.name for symbol in several.free_symbols} == {"y", "f", "mu", "sigma"}
    units = {sympy.Symbol("mu", real=True): 152.1, sympy.Symbol("sigma", positive=True): 77.0}
    assert float(several.subs({**at, **units})) == pytest.approx(expected.item())
    assert "mu" not in evomal.export(loss.in_units(None), to="latex")
