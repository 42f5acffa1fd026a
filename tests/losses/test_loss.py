"""Every loss of the catalogue and every kind of learned loss has all forms, and all forms are the same function."""

import ast

import pytest
import sympy
import torch

import evomal
from evomal.errors import InputError
from evomal.losses import (
    CATALOGUE,
    BalancedSoftmaxLoss,
    ClassWeightedCrossEntropyLoss,
    ExpressionLoss,
    FocalLoss,
    GeneralizedCrossEntropyLoss,
    NeuralLoss,
    NormalizedCrossEntropyLoss,
    QuantileLoss,
    SparseLabelSmoothingLoss,
    TaylorLoss,
    load_loss,
    named_loss,
    save_loss,
    starting_layers,
)
from evomal.losses.files import loss_document
from evomal.losses.priors import PriorLoss

LEARNED = {
    "expression": lambda **o: ExpressionLoss("abs(log(mul(y, f)))", [1.1, 0.9, 1.0, 1 / 3], **o),
    "softplus": lambda **o: ExpressionLoss("aq(sub(y, f), y)", activation="softplus", **o),
    "taylor": lambda **o: TaylorLoss([0.1, -0.2, 0.3, 1 / 3, 1e-20, 5, 6, 7], **o),
    "neural": lambda **o: NeuralLoss(starting_layers(hidden=7, generator=torch.Generator().manual_seed(0)), **o),
}
NAMED = {name: lambda name=name, **o: named_loss(name, **o) for name in CATALOGUE}
OTHERS = {
    "simplified": lambda **o: SparseLabelSmoothingLoss(0.3, simplified=True, **o),
    "focal 1.5": lambda **o: FocalLoss(1.5, **o),
    "gce 1": lambda **o: GeneralizedCrossEntropyLoss(1, **o),
    "nce 2": lambda **o: NormalizedCrossEntropyLoss(2.0, 0.5, -3.0, **o),
    "quantile 0.1": lambda **o: QuantileLoss(0.1, **o),
}
PRIORS = (0.1, 0.6, 0.3)
WITH_PRIORS = {
    "class-weighted with priors": lambda **o: ClassWeightedCrossEntropyLoss(PRIORS, **o),
    "balanced with priors": lambda **o: BalancedSoftmaxLoss(1.5, PRIORS, **o),
}
ALL = {**NAMED, **OTHERS, **WITH_PRIORS, **LEARNED}
KINDS = {name: make().kinds for name, make in ALL.items()}
EVERY = [(name, kind) for name, kinds in KINDS.items() for kind in kinds]
OF_CLASSES = [name for name, kind in EVERY if kind == "classification" and name not in WITH_PRIORS]
COUPLED = ("nce-rce", "nce 2")  # what one output costs depends on the others


def batch(loss, dtype=torch.float64):
    rng = torch.Generator().manual_seed(3)
    output = torch.randn(5, 3, generator=rng, dtype=torch.float64).to(dtype)
    targets = {
        "classification": torch.randint(3, (5,), generator=rng),
        "multilabel": torch.randint(2, (5, 3), generator=rng),
        "regression": torch.randn(5, 3, generator=rng, dtype=torch.float64).to(dtype),
    }
    return output, targets[loss.kind]


@pytest.fixture(params=EVERY, ids="-".join)
def loss(request):
    name, kind = request.param
    return ALL[name](kind=kind)


def test_the_contract(loss):
    output, target = batch(loss)
    losses = type(loss).forward(loss, output.requires_grad_(), target)
    (gradient,) = torch.autograd.grad(losses, output)
    assert losses.shape == ()
    assert losses.dtype == torch.float64
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 0
    half = loss(*(tensor.half() if tensor.is_floating_point() else tensor for tensor in batch(loss)))
    assert half.dtype == torch.float16
    shares = torch.ones(1) if loss.weight is None else loss.weight[target].double()
    for reduction, reduce in (("sum", torch.sum), ("mean", lambda each: (each / shares.mean()).mean())):
        loss.reduction = "none"
        each = loss(output, target)
        loss.reduction = reduction
        torch.testing.assert_close(loss(output, target), reduce(each))


def test_a_file_gives_the_same_loss_back(loss, tmp_path):
    save_loss(loss, tmp_path / "loss.json")
    again = load_loss(tmp_path / "loss.json")
    assert type(again) is type(loss)
    assert loss_document(again) == loss_document(loss)
    assert torch.equal(again(*batch(loss)), loss(*batch(loss)))


def test_exported_source_is_the_same_function(loss):
    scope = {}
    if isinstance(loss, PriorLoss) and loss.priors is None:
        with pytest.raises(InputError, match=f"^{loss.name} must have the priors of its classes to be exported: use "):
            evomal.export(loss)
        loss = loss.with_priors(PRIORS)
    source = evomal.export(loss, to="python")
    exec(compile(source, "exported.py", "exec"), scope)
    torch.testing.assert_close(scope["LearnedLoss"]()(*batch(loss)), loss(*batch(loss)), rtol=1e-9, atol=1e-12)
    docstring = ast.get_docstring(ast.parse(source))
    assert loss.formula() in " ".join(docstring.split())
    compile(evomal.export(loss, to="jax"), "exported.py", "exec")


def test_it_describes_itself(loss):
    assert loss.formula() not in ("", type(loss).__name__)
    assert loss.symbols()
    assert all(loss.describe()[:2])
    assert repr(loss).startswith(f"{type(loss).__name__}(")
    for option in loss.option_names:
        assert f"{option}={getattr(loss, option)!r}" in repr(loss)
    if loss.has_formula:
        assert loss.latex()
        assert loss.display_form().free_symbols
        assert isinstance(loss.sympy(), sympy.Basic)
    else:
        assert loss.display_form() is None
        with pytest.raises(InputError, match="has no closed formula"):
            loss.sympy()


def test_a_tree_is_the_same_function(loss):
    tree = loss.tree()
    if tree is not None:
        same = ExpressionLoss(tree.expression, tree.weights, kind=loss.kind, activation=tree.activation)
        # The protected log and sqrt of an expression add 1e-7 to their argument.
        is_protected = not loss.is_learned and {"log", "sqrt"} & {*tree.expression.tokens}
        close = {"rtol": 0, "atol": 2e-7} if is_protected else {"rtol": 1e-10, "atol": 1e-12}
        torch.testing.assert_close(same(*batch(loss)), loss(*batch(loss)), **close)


@pytest.mark.parametrize("name", OF_CLASSES)
def test_the_costs_of_single_outputs_add_up_to_the_loss_of_a_sample(name):
    loss = ALL[name]()
    logits = torch.tensor([[0.3, -1.0, 0.8, 0.1]], dtype=torch.float64)
    if name in COUPLED:
        with pytest.raises(InputError, match=r"^NormalizedCrossEntropyLoss has no value for a single output$"):
            loss.output_cost(logits, 1, 4)
        return
    total = sum(loss.output_cost(p, int(place == 2), 4) for place, p in enumerate(logits.softmax(1)[0]))
    assert float(total) == pytest.approx(float(loss(logits, torch.tensor([2]))), rel=1e-12)


@pytest.mark.parametrize("name", [*NAMED, *OTHERS, *WITH_PRIORS])
def test_the_sympy_form_is_the_same_function(name):
    loss = ALL[name](reduction="sum")
    form = loss.sympy()
    symbols = {symbol.name: symbol for symbol in form.free_symbols}
    if loss.kind == "regression":
        for f, y in ((0.3, 1.7), (2.0, -1.0)):
            value = loss(torch.tensor([f], dtype=torch.float64), torch.tensor([y], dtype=torch.float64))
            assert float(form.subs({symbols["f"]: f, symbols["y"]: y})) == pytest.approx(value.item(), rel=1e-9)
        return
    p = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    value = loss(p.log(), torch.tensor([1])).item()
    if "p" in symbols:
        powers = [share**1.5 for share in PRIORS]
        known = {
            "p": 0.5, "C": 3, "S": p.log().sum().item(), "pi": PRIORS[1], "w": 1 / (3 * PRIORS[1]),
            "Z": sum(power * share for power, share in zip(powers, p[0].tolist(), strict=True)),
        }  # fmt: skip
        got = form.subs({symbol: known[name] for name, symbol in symbols.items()})
    else:  # a sum over all outputs
        at = (
            {symbols["f"]: share, symbols["y"]: float(k == 1), symbols["C"]: 3} for k, share in enumerate(p[0].tolist())
        )
        got = sum(form.subs(point) for point in at)
    assert float(got) == pytest.approx(value, rel=1e-6 if name in WITH_PRIORS else 1e-9)  # priors are single precision


def test_a_class_of_the_user_s_own_has_no_name_and_no_file():
    class Halved(FocalLoss):
        def forward(self, output, target):
            return super().forward(output, target) / 2

    assert Halved().catalogue_name is None
    assert Halved().formula() == "Halved"
    with pytest.raises(InputError, match=r"^only evomal's own losses can be saved but got Halved$"):
        Halved().document()
