"""The matrix of the linear solve, factorized once per gallery: dense or low-rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Literal

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.records import dataclass

FactorForm = Literal["dense", "low-rank"]

# Classes are joined into diagonal blocks of at least this many samples: enough to make the overhead of a
# matrix product negligible, and few enough for the zeros between small classes to cost little.
_BLOCK_SAMPLES = 128


@dataclass(frozen=True)
class DenseFactor:
    """H and M = (1 + lam) P X', for a gallery with few samples compared to its dimension."""

    H: Array  # (n, n)
    M: Array  # (n, d)

    def first_code(self, Y: Array) -> Array:
        return self.M @ Y

    def product(self, A: Array, out: Array) -> None:
        """Set out = H A."""
        np.matmul(self.H, A, out=out)


@dataclass(frozen=True)
class LowRankFactor:
    """H = B - E E', for a gallery with many samples compared to its dimension.

    With D = lam blockdiag(X_i'X_i) + mu/2 I and S = I + X D^-1 X' = L L', B = (mu/2) D^-1,
    E = sqrt(mu/2) D^-1 X' L^-T and c_1 = E (W y) for W = (1 + lam) sqrt(2/mu) L^-1.
    Rows of X that are all zero, such as the pixels at the edges of digits, are left out, as they add nothing
    to X'X or X'y; e is the number of the other rows.
    """

    E: Array  # (n, e)
    W: Array  # (e, d), with zero columns for the zero rows of X
    block_edges: Array  # where each diagonal block of B starts, and n
    block_is_tall: Array  # whether a block is one class of more than 2e samples
    squares: Array  # the blocks that are not tall, one after the other, each row by row; empty if lam = 0
    talls: Array  # (samples in tall blocks, e): G_i', for B_i = I - G_i' G_i

    def first_code(self, Y: Array) -> Array:
        c1: Array = self.E @ (self.W @ Y)
        return c1

    def product(self, A: Array, out: Array) -> None:
        """Set out = B A - E (E'A), one block of rows at a time, so that it stays in the cache."""
        EtA = self.E.T @ A
        for rows, tall, block in self._blocks():
            np.matmul(self.E[rows], EtA, out=out[rows])
            if block is None:
                BA = A[rows]
            elif tall:
                BA = A[rows] - block @ (block.T @ A[rows])
            else:
                BA = block @ A[rows]
            np.subtract(BA, out[rows], out=out[rows])

    def _blocks(self) -> Iterator[tuple[slice, bool, Array | None]]:
        """Yield each block's rows, whether it is tall, and its G' or square; None if B is the identity."""
        identity = not self.squares.size and not self.talls.size
        next_square = next_tall = 0
        for (start, stop), tall in zip(pairwise(self.block_edges.tolist()), self.block_is_tall, strict=True):
            rows, size = slice(start, stop), stop - start
            if identity:
                yield rows, False, None
            elif tall:
                yield rows, True, self.talls[next_tall : next_tall + size]
                next_tall += size
            else:
                square = self.squares[next_square : next_square + size * size]
                yield rows, False, square.reshape(size, size)
                next_square += size * size


Factor = DenseFactor | LowRankFactor


def factor_of(arrays: Mapping[str, Array]) -> Factor:
    """Return the factor that consists of these arrays."""
    return DenseFactor(**arrays) if "H" in arrays else LowRankFactor(**arrays)


def concatenate_spans(edges: Array, numbers: Array) -> Array:
    """Return the rows of the spans with these numbers, one after the other; span i begins at edges[i]."""
    return np.concatenate([np.arange(edges[number], edges[number + 1]) for number in numbers.tolist()])


def reorder_factor(factor: Factor, edges: Array, classes: Array) -> Factor | None:
    """Return the factor for the classes in another order, by their numbers; None if the blocks do not fit."""
    rows = concatenate_spans(edges, classes)
    if isinstance(factor, DenseFactor):
        return DenseFactor(factor.H[np.ix_(rows, rows)], factor.M[rows])
    sizes = np.diff(edges)[classes]
    new_edges = np.concatenate([[0], np.cumsum(sizes)])
    block_edges, is_tall = join_classes(new_edges, factor.E.shape[1])
    of_classes = _blocks_of_classes(factor, edges)
    if of_classes is None:
        return None
    squares: list[Array] = []
    talls: list[Array] = []
    for (start, stop), tall in zip(pairwise(block_edges.tolist()), is_tall, strict=True):
        first, last = np.searchsorted(new_edges, [start, stop])
        members = [of_classes[number] for number in classes[first:last].tolist()] if of_classes else []
        if tall:
            talls += members
        elif members:
            B = np.zeros((stop - start, stop - start), factor.E.dtype)
            for at, block in zip((new_edges[first:last] - start).tolist(), members, strict=True):
                B[at : at + len(block), at : at + len(block)] = block
            squares.append(B.ravel())
    return LowRankFactor(
        E=factor.E[rows],
        W=factor.W,
        block_edges=block_edges,
        block_is_tall=is_tall.astype(np.uint8),
        squares=np.concatenate([factor.squares[:0], *squares]),
        talls=np.concatenate([factor.talls[:0], *talls]),
    )


def _blocks_of_classes(factor: LowRankFactor, edges: Array) -> list[Array] | None:
    """Return the block of B of each class, or G' of a tall class; empty if B is the identity.

    None if the blocks do not consist of whole classes, or if another crnr chose other tall ones.
    """
    if not factor.squares.size and not factor.talls.size:
        return []
    expected = join_classes(edges, factor.E.shape[1])
    stored = (factor.block_edges, factor.block_is_tall)
    if not all(map(np.array_equal, stored, expected)):
        return None
    found: list[Array] = []
    for rows, tall, block in factor._blocks():
        assert block is not None
        first, last = np.searchsorted(edges, [rows.start, rows.stop])
        for start, stop in pairwise((edges[first : last + 1] - rows.start).tolist()):
            found.append(block if tall else block[start:stop, start:stop])
    return found


def join_classes(edges: Array, d: int) -> tuple[Array, Array]:
    """Return the edges of the diagonal blocks and which are tall: tall classes alone, small ones joined."""
    joined, is_tall = [0], []
    for start, stop in pairwise(edges.tolist()):
        tall = stop - start > 2 * d
        if tall and joined[-1] != start:
            joined.append(start)
            is_tall.append(False)
        if tall or stop - joined[-1] >= _BLOCK_SAMPLES or stop == edges[-1]:
            joined.append(stop)
            is_tall.append(tall)
    return np.array(joined), np.array(is_tall)


def multiplications(form: FactorForm, edges: Array, d: int, lam: float, iterations: int) -> float:
    """Return the number of multiply-adds to code one query with a factor of this form."""
    n = float(edges[-1])
    if form == "dense":
        return n * d + (iterations - 1) * n * n
    block_edges, is_tall = join_classes(edges, d)
    sizes = np.diff(block_edges).astype(float)
    blocks = np.where(is_tall, 2 * d * sizes, sizes * sizes).sum() if lam > 0 else 0.0
    return n * d + d * d + (iterations - 1) * (2 * n * d + float(blocks))


def cheaper_form(edges: Array, d: int, lam: float, iterations: int) -> FactorForm:
    dense = multiplications("dense", edges, d, lam, iterations)
    low_rank = multiplications("low-rank", edges, d, lam, iterations)
    return "dense" if dense <= low_rank else "low-rank"


def factor_bytes(form: FactorForm, edges: Array, d: int, itemsize: int) -> int:
    """Estimate how much memory factorizing needs at its peak, besides the samples."""
    n = int(edges[-1])
    if form == "dense":
        return n * n * (3 * 8 + itemsize) + n * d * (2 * 8 + itemsize)
    block_edges, is_tall = join_classes(edges, d)
    sizes = np.diff(block_edges)
    blocks = int(np.where(is_tall, d * sizes, sizes * sizes).sum())
    largest, square = int(sizes.max()), int(sizes[~is_tall].max(initial=0))
    # Besides its argument and its result, np.linalg.inv needs two matrices of that size.
    inverting = 8 * (4 * square * square + square * d + d * d)
    joining = blocks * itemsize + 8 * (4 * largest * d + 5 * d * d)
    return n * d * itemsize + blocks * itemsize + max(inverting, joining)


def factorize_dense(X: Array, edges: Array, lam: float, mu: float) -> DenseFactor:
    """Return the factor, computed in float64 and stored in the type of X."""
    X64 = X.astype(np.float64)
    P = _dense_inverse(X64.T @ X64, edges, lam, mu)
    M = P @ X64.T
    M *= 1 + lam  # in place: from Python 3.14 on, NumPy does not reuse the memory of a temporary array
    P *= mu / 2
    return DenseFactor(P.astype(X.dtype), M.astype(X.dtype))


def factorize_gram(G: Array, edges: Array, lam: float, mu: float, dtype: str) -> DenseFactor:
    """Return the factor from G = X'X alone, for queries given as X'Y.

    Both G and X'Y can be reused for every lam and mu.
    """
    P = _dense_inverse(G.copy(), edges, lam, mu)
    return DenseFactor((mu / 2 * P).astype(dtype), ((1 + lam) * P).astype(dtype))


def _dense_inverse(Q: Array, edges: Array, lam: float, mu: float) -> Array:
    """Return P, from Q = X'X in float64, which is overwritten."""
    for start, stop in pairwise(edges.tolist()):
        Q[start:stop, start:stop] *= 1 + lam
    Q[np.diag_indices_from(Q)] += mu / 2
    return inverse(Q)


def factorize_low_rank(X: Array, edges: Array, lam: float, mu: float) -> LowRankFactor:
    """Return the factor, computed in float64, block by block, and stored in the type of X.

    Only NumPy is used: SciPy has its own threads, which would wait for cores that NumPy's threads still use.
    """
    used = X.any(axis=1)
    e, (d, n) = int(used.sum()), X.shape
    block_edges, is_tall = join_classes(edges, e)
    squares: list[Array] = []
    talls: list[Array] = []
    S = np.eye(e)
    E = np.empty((n, e), X.dtype)
    for (start, stop), tall in zip(pairwise(block_edges.tolist()), is_tall, strict=True):
        Xb = X[used, start:stop].astype(np.float64)
        if lam == 0:
            BXt = Xb.T
        elif tall:
            # B_i = I - X_i' (mu/(2 lam) I + X_i X_i')^-1 X_i = I - G'G
            G = _inverse_root(Xb @ Xb.T + mu / (2 * lam) * np.eye(e)) @ Xb
            talls.append(G.T.astype(X.dtype))
            BXt = Xb.T - G.T @ (G @ Xb.T)
        else:
            first, last = np.searchsorted(edges, [start, stop])
            B = _square_block(Xb, edges[first : last + 1] - start, lam, mu)
            squares.append(B.ravel().astype(X.dtype))
            BXt = B @ Xb.T
        S += (2 / mu) * (Xb @ BXt)
        E[start:stop] = BXt
    scaled_inverse = np.sqrt(2 / mu) * _inverse_root(S)
    W = np.zeros((e, d), X.dtype)
    W[:, used] = (1 + lam) * scaled_inverse
    for start, stop in pairwise(block_edges.tolist()):
        E[start:stop] = E[start:stop].astype(np.float64) @ scaled_inverse.T
    return LowRankFactor(
        E=E,
        W=W,
        block_edges=block_edges,
        block_is_tall=is_tall.astype(np.uint8),
        squares=np.concatenate([np.empty(0, X.dtype), *squares]),
        talls=np.concatenate([np.empty((0, e), X.dtype), *talls]),
    )


def _square_block(Xb: Array, edges: Array, lam: float, mu: float) -> Array:
    """Return B for a few classes: (mu/2) (lam blockdiag(X_i'X_i) + mu/2 I)^-1."""
    D = np.zeros((Xb.shape[1], Xb.shape[1]))
    for start, stop in pairwise(edges.tolist()):
        Xi = Xb[:, start:stop]
        D[start:stop, start:stop] = lam * (Xi.T @ Xi)
    D[np.diag_indices_from(D)] += mu / 2
    B = np.linalg.inv(D)
    return (mu / 4) * (B + B.T)


def _inverse_root(S: Array) -> Array:
    """Return L^-1 for S = L L', lower triangular."""
    return np.tril(np.linalg.inv(np.linalg.cholesky(S)))


def inverse(Q: Array) -> Array:
    """Return the inverse of a symmetric positive definite matrix, exactly symmetric. Q is overwritten."""
    from scipy.linalg.lapack import dpotrf, dpotri

    # Q' is Q in Fortran order, as LAPACK needs it. dpotrf sets everything above the diagonal to zero.
    lower, info = dpotrf(Q.T, lower=1, overwrite_a=1)
    if info == 0:
        lower, info = dpotri(lower, lower=1, overwrite_c=1)
    if info != 0:
        raise np.linalg.LinAlgError(f"matrix is not positive definite (LAPACK info {info})")
    full: Array = lower + lower.T
    full[np.diag_indices_from(full)] /= 2
    return full


def projection_form(edges: Array, d: int) -> FactorForm:
    return "dense" if edges[-1] <= d else "low-rank"


def projection(X: Array, edges: Array, lam: float, ridge: float) -> Array:
    """Return (X'X + lam blockdiag(X_i'X_i) + ridge I)^-1 X', (n x d).

    This is the first step of an ADMM with mu = 2 ridge. It is computed in float64, without an n x n matrix if
    n > d, and stored in the type of X.
    """
    d = X.shape[0]
    factorize = factorize_dense if projection_form(edges, d) == "dense" else factorize_low_rank
    factor = factorize(X.astype(np.float64), edges, lam, 2 * ridge)
    return (factor.first_code(np.eye(d)) / (1 + lam)).astype(X.dtype)
