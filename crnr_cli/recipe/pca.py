"""Principal components."""

from __future__ import annotations

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, UsageError
from crnr_cli.recipe.recipe import _raised


def principal_axes(raw: Array, count: int, power: float = 1.0) -> Array:
    """(n_inputs, count): the leading eigenvectors of the covariance of the centred samples.

    The samples themselves are projected without subtracting the mean, as the method's authors do.
    """
    n, n_inputs = raw.shape
    most = min(n - 1, n_inputs)
    if not 1 <= count <= most:
        raise UsageError(
            f"--pca {count}: {n} samples of {n_inputs} numbers have 1 to {most} principal components"
        )
    largest = max(abs(float(raw.min())), abs(float(raw.max())))
    values = _raised(np.divide(raw, largest or 1.0, dtype=np.float64), power)
    values -= values.mean(axis=0)
    if n_inputs <= n:
        _, axes = _leading_eigenvectors(values.T @ values, count)
    else:
        # The same axes from the smaller matrix: if G u = s u for G = A A', then A'u is an axis of A'A.
        variances, weights = _leading_eigenvectors(values @ values.T, count)
        if variances[0] <= n * np.finfo(float).eps * variances[-1]:
            raise DataError(f"--pca {count}: the samples span fewer dimensions; ask for fewer components")
        axes = (values.T @ weights) / np.sqrt(variances)
    return np.ascontiguousarray(axes[:, ::-1])


def _leading_eigenvectors(symmetric: Array, count: int) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors, the largest last."""
    n = len(symmetric)
    if 4 * count > n:  # to find all and take some is the quicker way then
        variances, axes = np.linalg.eigh(symmetric)
        return variances[n - count :], axes[:, n - count :]
    from scipy.linalg import eigh  # slow to import, and queries never need it

    variances, axes = eigh(symmetric, subset_by_index=[n - count, n - 1])
    return variances, axes
