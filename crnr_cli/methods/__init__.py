"""The registry of methods by name. To add a method, write a class, import it here, and add it to METHODS."""

from __future__ import annotations

from collections.abc import Mapping

from crnr_cli.errors import UsageError
from crnr_cli.methods.base import CodingMethod, Method, Samples, Split, State, batch_size
from crnr_cli.methods.fitting import fitted
from crnr_cli.methods.local import LocalCoding
from crnr_cli.methods.neighbour import Nn
from crnr_cli.methods.nonnegative import Crnr, NonNegative, Nrc
from crnr_cli.methods.ridge import Crc, Croc, Nsc, Procrc
from crnr_cli.methods.sparse import Src
from crnr_cli.methods.trained import Softmax, Svm
from crnr_cli.wording import not_one_of

__all__ = [
    "METHODS",
    "NEWEST_VERSION",
    "CodingMethod",
    "LocalCoding",
    "Method",
    "NonNegative",
    "Samples",
    "Split",
    "State",
    "batch_size",
    "fitted",
    "make_method",
    "parse_parameter",
]

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        Crnr,
        Nrc,
        Crc,
        Nsc,
        Src,
        Croc,
        Procrc,
        Nn,
        Svm,
        Softmax,
    )
}


NEWEST_VERSION = max(method.newest_version for method in METHODS.values())  # of the gallery format


def make_method(name: str, parameters: Mapping[str, object]) -> Method:
    """The method of this name with these parameters, the rest at their defaults."""
    if name not in METHODS:
        raise UsageError(f"method: {not_one_of(name, METHODS)}")
    for parameter in parameters:
        _refuse_unknown(name, parameter)
    return METHODS[name](**parameters)


def parse_parameter(name: str, parameter: str, text: str) -> object:
    """The value of a parameter from text, in the type of its default."""
    _refuse_unknown(name, parameter)
    kind: type = type(getattr(METHODS[name], parameter))
    try:
        return kind(text)
    except ValueError as e:
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f"{name}.{parameter}: {text!r} is not {what}") from e


def _refuse_unknown(name: str, parameter: str) -> None:
    known = METHODS[name].parameter_names()
    if parameter not in known:
        raise UsageError(f"{name} has no parameter {parameter}; it has {', '.join(known) or 'none'}")
