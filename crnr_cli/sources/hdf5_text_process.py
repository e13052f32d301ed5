"""A process that reads text of variable length from an HDF5 file for another.

HDF5 follows the pointers of such text without end if they are damaged, or made so. Its arguments are the file
and the dataset; its answer is a JSON list.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import h5py

BASE_BYTES = 2**30  # of address space, for Python and HDF5 themselves
BYTES_A_BYTE = 16  # of the file, as objects and as JSON


def main() -> None:
    path, name = Path(sys.argv[1]), sys.argv[2]
    limit = BASE_BYTES + BYTES_A_BYTE * path.stat().st_size
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    with h5py.File(path, "r", locking=False) as file:
        values = file[name][()].ravel().tolist()
    json.dump([value.decode("utf-8", "surrogateescape") for value in values], sys.stdout)


if __name__ == "__main__":
    main()
