"""Methods by name."""

from evomal.checks import unknown_name
from evomal.methods.baseline import BASELINE
from evomal.methods.evolution import EVOMAL, GP_LFL, RANDOM
from evomal.methods.method import Method
from evomal.methods.ml3 import ML3, ML3_SINGLE
from evomal.methods.taylorglo import TAYLORGLO

METHODS: dict[str, Method] = {
    method.name: method for method in (EVOMAL, GP_LFL, TAYLORGLO, ML3, ML3_SINGLE, RANDOM, BASELINE)
}


def method_named(name: str) -> Method:
    """The method of that name, or an error with the nearest one."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]
