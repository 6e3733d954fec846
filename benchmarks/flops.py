"""Counts the floating-point operations of products and convolutions in a traced function.

XLA's own count takes the body of a loop once, however often it runs; this one walks the trace and multiplies.
It counts what is written, before XLA drops what is unused, and a convolution's zero padding as if it were
there: an upper bound.
"""

import math
from typing import Any

import jax
from jax.extend import core


def count_flops(function, *args) -> int:
    """Returns the operations (a multiply and an add are two) of `function(*args)`."""
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def _count(jaxpr: core.Jaxpr) -> int:
    return sum(_equation(equation) for equation in jaxpr.eqns)


def _equation(equation: Any) -> int:
    name, params = equation.primitive.name, equation.params
    out = math.prod(equation.outvars[0].aval.shape) if equation.outvars else 0
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        return 2 * out * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        return 2 * out * math.prod(kernel) // kernel[params["dimension_numbers"].rhs_spec[0]]
    times = params["length"] if name == "scan" else 1
    inner = (jaxpr for value in params.values() for jaxpr in _jaxprs(value))
    return times * sum(_count(jaxpr) for jaxpr in inner)


def _jaxprs(value):
    for item in value if isinstance(value, tuple | list) else (value,):
        jaxpr = getattr(item, "jaxpr", item)
        if isinstance(jaxpr, core.Jaxpr):
            yield jaxpr
