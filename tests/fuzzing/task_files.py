"""A file of tasks whose code misbehaves, each in its own way; it is a user's own, so that it may be run."""

NAME = "tasks.py"
SOURCE = """
import sys
import numpy as np
import torch
from evomal import Task

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(40, 3)).astype("float32"), rng.normal(size=(40, 1)).astype("float32")
LABELS = rng.integers(0, 3, 40)


def task_of(model=lambda: torch.nn.Linear(3, 1), x=X, y=Y, kind="regression", **options):
    return Task.from_arrays(x, y, model=model, kind=kind, **options)


def raising(*arguments, **named):
    raise RuntimeError("forged\\nforged-line: all is well \\x1b[2J")


class Broken(torch.nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.inner, self.answer = torch.nn.Linear(3, 1), answer

    def forward(self, x):
        return self.answer(self.inner(x))


def good(): return task_of()
def labelled(): return task_of(lambda: torch.nn.Linear(3, 3), y=LABELS, kind="classification")
def raises(): raising()
def exits(): sys.exit("forged")
def exits_well(): sys.exit(0)
def interrupts(): raise KeyboardInterrupt
def recurses(): return recurses()
def nothing(): return None
def needs_more(argument): return task_of()
def model_raises(): return task_of(raising)
def model_exits(): return task_of(lambda: sys.exit(3))
def model_is_none(): return task_of(lambda: None)
def model_is_a_class(): return task_of(torch.nn.Linear)
def model_is_a_text(): return task_of("mlp")
def model_without_weights(): return task_of(lambda: torch.nn.Flatten())
def model_of_other_width(): return task_of(lambda: torch.nn.Linear(7, 1))
def model_of_other_outputs(): return task_of(lambda: torch.nn.Linear(3, 5))
def forward_raises(): return task_of(lambda: Broken(raising))
def forward_is_none(): return task_of(lambda: Broken(lambda out: None))
def forward_is_a_pair(): return task_of(lambda: Broken(lambda out: (out, out)))
def forward_is_nan(): return task_of(lambda: Broken(lambda out: out * torch.nan))
def forward_is_whole(): return task_of(lambda: Broken(lambda out: out.long()))
def forward_has_no_rows(): return task_of(lambda: Broken(lambda out: out[:0]))
def metric_raises(): return task_of(metric=raising)
def metric_is_none(): return task_of(metric=lambda output, target: None)
def metric_is_nan(): return task_of(metric=lambda output, target: float("nan"))
def metric_is_a_text(): return task_of(metric=lambda output, target: "0.5")
def metric_is_a_tensor(): return task_of(metric=lambda output, target: output)
def metric_unknown(): return task_of(metric="forged")
def name_leads_out(): return task_of(name="../../../../../forged")
def name_is_absolute(): return task_of(name="/proc/forged")
def name_is_dots(): return task_of(name="..")
def name_has_escapes(): return task_of(name="\\x1b[2Jforged\\nforged-line: all is well")
def name_is_empty(): return task_of(name="")
def name_is_long(): return task_of(name="forged" * 200)
def name_is_markup(): return task_of(name="[forged](http://forged.example)<forged-element>$\\\\frac{$")
def name_is_a_number(): return task_of(name=7)
def name_is_surrogate(): return task_of(name="\\ud800")
def data_ragged(): return task_of(x=[[1.0], [1.0, 2.0]] * 20)
def data_text(): return task_of(x=[["forged"] * 3] * 40)
def data_objects(): return task_of(x=np.array([[object()] * 3] * 40))
def data_none(): return task_of(x=None)
def data_empty(): return task_of(x=X[:0], y=Y[:0])
def data_one_row(): return task_of(x=X[:1], y=Y[:1])
def data_nan(): return task_of(x=X * np.nan)
def data_infinite(): return task_of(y=Y * np.inf)
def data_huge(): return task_of(y=Y * 1e38)
def data_constant(): return task_of(x=X * 0, y=Y * 0)
def data_bfloat16(): return task_of(x=torch.tensor(X).bfloat16())
def data_half(): return task_of(x=X.astype("float16"), y=Y.astype("float16"))
def data_complex(): return task_of(x=X.astype("complex64"))
def data_bool(): return task_of(x=X > 0)
def data_scalar(): return task_of(x=3.0, y=4.0)
def data_of_other_length(): return task_of(y=Y[:7])
def data_sparse(): return task_of(x=torch.tensor(X).to_sparse())
def data_needs_gradient(): return task_of(x=torch.tensor(X, requires_grad=True))
def labels_text(): return task_of(lambda: torch.nn.Linear(3, 3), y=["a", "b"] * 20, kind="classification")
def labels_negative(): return task_of(lambda: torch.nn.Linear(3, 3), y=LABELS - 5, kind="classification")
def labels_huge(): return task_of(lambda: torch.nn.Linear(3, 3), y=LABELS + 2**40, kind="classification")
def labels_of_one_class(): return task_of(lambda: torch.nn.Linear(3, 3), y=LABELS * 0, kind="classification")
def labels_float(): return task_of(lambda: torch.nn.Linear(3, 3), y=LABELS + 0.5, kind="classification")
def split_of_nothing(): return task_of(validation=0)
def split_of_everything(): return task_of(validation=1.0, test=1.0)
def split_negative(): return task_of(validation=-0.5)
def split_nan(): return task_of(test=float("nan"))
"""
FUNCTIONS = tuple(
    line[4:].partition("(")[0] for line in SOURCE.splitlines() if line.startswith("def ") and line.partition(": ")[2]
)
