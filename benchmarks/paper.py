"""The paper's tables, measured here: `python benchmarks/paper.py ar | mnist [--draws 10] [--json]`.

The data is not part of the project: --data names the folder that holds AR_DAT.mat, ar_reference.npz and
mnist/. What is not there is skipped, and the skip is said.
"""
