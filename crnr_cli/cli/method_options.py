"""The groups of options for a method and its parameters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from crnr_cli.cli.values import METHOD, Choice, Number, Whole

_method_option = partial(typer.Option, rich_help_panel="Method")
_parameter_option = partial(typer.Option, rich_help_panel="Parameters of methods")


def _factors() -> Iterable[str]:
    from crnr_cli.methods.nonnegative import FACTORS

    return FACTORS


def _indexes() -> Iterable[str]:
    from crnr_cli.solvers.indexes import INDEXES

    return INDEXES


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """The method, and what to prepare for rejecting queries and for probabilities."""

    method: Annotated[
        str,
        _method_option(parser=METHOD, help="How queries are compared with the samples: {choices}."),
    ] = "crnr"
    calibrate: Annotated[
        bool,
        _method_option(
            "--calibrate",
            help="Compute when to reject a query and how probable answers are, and store it; otherwise every "
            "`classify --reject` computes it again.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ParameterOptions:
    """The parameters of all methods; those that are None stay at the method's defaults."""

    lam: Annotated[
        float | None,
        _parameter_option(
            parser=Number(),
            metavar="X",
            help="How much each class has to represent a query by itself (crnr); strength of the "
            "regularization (crc, croc, procrc, src).",
            show_default="0.01 for crnr, else 0.001",
        ),
    ] = None
    mu: Annotated[
        float | None,
        _parameter_option(
            parser=Number(above=0),
            metavar="X",
            help="Penalty of ADMM: how strongly an iteration is drawn to non-negative weights (crnr, nrc).",
            show_default="0.1",
        ),
    ] = None
    iterations: Annotated[
        int | None,
        _parameter_option(
            parser=Whole(at_most=10**6),
            metavar="N",
            help="Iterations of ADMM (crnr, nrc); maximum number of iterations (src).",
            show_default="5; 2000 for src",
        ),
    ] = None
    tol: Annotated[
        float | None,
        _parameter_option(
            parser=Number(),
            metavar="X",
            help="Stop early when the weights of a query change by less than this (crnr, nrc) or when the "
            "duality gap is below it (src).",
            show_default="0, which is never; 1e-6 for src",
        ),
    ] = None
    factor: Annotated[
        str | None,
        _parameter_option(
            parser=Choice(_factors),
            help="Form in which the factorized system is stored (crnr, nrc): {choices}. auto takes the "
            "cheaper one.",
            show_default="auto",
        ),
    ] = None
    neighbors: Annotated[
        int | None,
        _parameter_option(
            parser=Whole(0, 2000),
            metavar="K",
            help="Compare a query with its K nearest samples alone, 0 for all. Large galleries are "
            "then built and searched faster (crnr, nrc, crc, src).",
            show_default="0",
        ),
    ] = None
    index: Annotated[
        str | None,
        _parameter_option(
            parser=Choice(_indexes),
            help="How the K nearest samples are found: {choices}. ivf and hnsw miss a few, but are faster in "
            "galleries of 100,000 samples and more; they need the extra faiss (crnr, nrc, crc, src).",
            show_default="exact",
        ),
    ] = None
    gamma: Annotated[
        float | None,
        _parameter_option(
            parser=Number(),
            metavar="X",
            help="How strongly the representation by each class is drawn to that by all classes (procrc).",
            show_default="0.001",
        ),
    ] = None
    weight: Annotated[
        float | None,
        _parameter_option(
            parser=Number(),
            metavar="X",
            help="Weight of the residual of crc, which is added to that of nsc (croc).",
            show_default="0.1",
        ),
    ] = None
    c: Annotated[
        float | None,
        _parameter_option(
            "--c",
            parser=Number(above=0),
            metavar="X",
            help="Inverse of the regularization strength: higher values fit the samples more closely "
            "(svm, softmax).",
            show_default="1; 100 for softmax",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}
