"""The mathematics: ADMM for CRNRC with a single state array, ridge codes, subspaces. No files and no labels.

Notation, as in the paper: X (d x n) is the gallery, with one unit column per sample; class i is the columns
edges[i] to edges[i + 1]; Y (d x m) are m queries; and c (n x m) their codes, the minimisers of

    ||y - X c||^2 + lam * sum_i ||y - X_i c_i||^2     subject to c >= 0.

With P = (X'X + lam blockdiag(X_i'X_i) + mu/2 I)^-1 and H = (mu/2) P, a single array v = c - u is enough for
ADMM's splitting variable z and scaled multiplier u: at the next step, z = max(v, 0) and u = max(-v, 0).

    c_1     = (1 + lam) P X'y          v_1     = c_1
    c_(t+1) = c_1 + H |v_t|            v_(t+1) = c_(t+1) + min(v_t, 0)

H is stored either as it is (dense) or as a block-diagonal matrix minus a matrix of rank d (low rank).
SciPy is imported only to make a dense factor or a basis: classify makes neither, and so starts faster.
"""
