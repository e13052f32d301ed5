"""crnr: label files by comparing them with a gallery of labelled examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crnr_cli.api import Answer, Explanation, Gallery
    from crnr_cli.errors import CrnrError
    from crnr_cli.estimators import (
        CRCClassifier,
        CRNRClassifier,
        CROCClassifier,
        NRCClassifier,
        NSCClassifier,
        ProCRCClassifier,
        SRCClassifier,
    )

__version__ = "0.3.0"

__all__ = [
    "Answer",
    "CRCClassifier",
    "CRNRClassifier",
    "CROCClassifier",
    "CrnrError",
    "Explanation",
    "Gallery",
    "NRCClassifier",
    "NSCClassifier",
    "ProCRCClassifier",
    "SRCClassifier",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import NumPy and scikit-learn only when they are needed, so that `crnr --help` stays fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "CrnrError":
        from crnr_cli import errors

        return errors.CrnrError
    if name.endswith("Classifier"):
        from crnr_cli import estimators

        return getattr(estimators, name)
    from crnr_cli import api

    return getattr(api, name)
