"""A process that reads variable-length text from an HDF5 file for its parent.

HDF5 follows the pointers in such text, endlessly if they are damaged or malicious. The arguments are the file
and the dataset; the output is a JSON list.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import h5py

from crnr_cli.system.child import limit_address_space

BASE_BYTES = 2**30  # of address space, for Python and HDF5 themselves
_BYTES_PER_BYTE = 16  # of address space per byte of the file, for the objects and the JSON


def main() -> None:
    path, name = Path(sys.argv[1]), sys.argv[2]
    limit_address_space(BASE_BYTES + _BYTES_PER_BYTE * path.stat().st_size)
    with h5py.File(path, "r", locking=False) as file:
        values = file[name][()].ravel().tolist()
    json.dump([value.decode("utf-8", "surrogateescape") for value in values], sys.stdout)


if __name__ == "__main__":
    main()
