"""Opens many damaged copies of a file, one after the other; a process of tests/project/test_hostile_files.py.

A crash, a hang, too much memory or an exception that is not ours ends the process, and its last words are
the seed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from crnr_cli.errors import CrnrError, SampleError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.queries import QueryOptions
from crnr_cli.images.decode import read_pixels
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.jobs.evaluate import evaluate
from crnr_cli.sources.formats import Keys
from crnr_cli.sources.tables import FeatureFile
from crnr_cli.system import spares

# The limits for one file and the processes started for it.
CPU_SECONDS = 5.0  # which others on the machine do not lengthen, as they do
WALL_SECONDS = 20.0
MEGABYTES = 1024


def mutated(data: bytes, seed: int) -> tuple[bytes, bool]:
    """Bits flipped, numbers made extreme, pieces cut, copied or moved; and whether it only was cut short."""
    chance = random.Random(seed)
    changed = bytearray(data)
    where = chance.randrange(len(data))
    match seed % 6:
        case 0:
            changed[where] ^= 1 << chance.randrange(8)
        case 1:
            size = chance.choice([1, 2, 4, 8])
            changed[where : where + size] = chance.choice([b"\xff", b"\0", b"\x7f", b"\x80"]) * size
        case 2:
            return data[:where], True
        case 3:
            for _ in range(chance.randrange(2, 20)):
                changed[chance.randrange(min(len(data), 3000))] = chance.randrange(256)
        case 4:
            size = chance.randrange(1, 200)
            source = chance.randrange(len(data))
            changed[where : where + size] = data[source : source + size]
        case _:
            size = chance.randrange(1, 50)
            changed[where:where] = chance.randbytes(size)
    return bytes(changed), False


def open_gallery(path: Path) -> object:
    gallery = load_gallery(path)
    arrays = {"vectors": gallery.samples.vectors, "edges": gallery.samples.edges, **gallery.state}
    columns = [list(column) for column in (gallery.names, gallery.hashes, gallery.stamps)]
    return repr((columns, gallery.classes, gallery.method)), {
        name: array.tobytes() for name, array in arrays.items()
    }


def open_image(path: Path) -> object:
    pixels = read_pixels(str(path), PixelRequest((16, 12)))
    assert (pixels.width, pixels.height) == (16, 12)
    assert len(pixels.data) == 16 * 12 * (4 if pixels.is_float else 1)
    return pixels.data


def open_features(path: Path) -> object:
    file = FeatureFile.open(path, Keys())
    values = file.read_rows(0, len(file))
    assert values.shape == (len(file.names), file.n_features)
    assert values.dtype.kind in "fiub"
    assert file.labels is None or len(file.labels) == len(values)
    return values.tobytes(), file.n_features


def open_table(path: Path) -> object:
    report = evaluate([str(path)], Path("none"), QueryOptions())
    assert 0 <= report.scores.correct <= report.scores.n
    return None


# How to open a file, and a check for a damaged file that opens.
OPEN: dict[str, Callable[[Path], object]] = {
    "gallery": open_gallery,
    "features": open_features,
    "image": open_image,
    "table": open_table,
}
CHECKSUMMED = {".png", ".npz"}  # and galleries: a file that opens is unchanged


def cpu_seconds() -> float:
    """Return the processor time of this process and its finished children."""
    return sum(os.times()[:4])


def peak_megabytes() -> float:
    """Return the peak memory of this process, or of a finished child."""
    import resource

    # Not getrusage's figure of ourselves, which begins with what the process that started us held.
    status = Path("/proc/self/status").read_text()
    own = int(status.partition("VmHWM:")[2].split()[0])
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024


def main() -> None:
    kind, name, first, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    for number in (signal.SIGALRM, signal.SIGPROF):  # the end of the process, even inside a C library
        signal.signal(number, signal.SIG_DFL)
    with spares.kept():  # the processes that read some files, as each of them would take longer to start
        open_mutated(kind, name, first, count)


def open_mutated(kind: str, name: Path, first: int, count: int) -> None:
    data = name.read_bytes()
    whole = OPEN[kind](name)
    damaged = name.with_name("damaged" + name.suffix)
    ends: Counter[str] = Counter()
    for seed in range(first, first + count):
        print(seed, flush=True)  # noqa: T201, if it is the last one, it is the culprit
        content, cut = mutated(data, seed)
        damaged.write_bytes(content)
        before = cpu_seconds()
        signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            with np.errstate(all="ignore"):
                opened = OPEN[kind](damaged)
        except (CrnrError, SampleError) as e:
            ends["refused" if str(e) else "refused without a word"] += 1
        else:
            faithful = kind == "gallery" or name.suffix in CHECKSUMMED or (cut and kind == "image")
            assert not faithful or opened == whole, "opened, and is not what it was"
            ends["opened"] += 1
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert cpu_seconds() - before < CPU_SECONDS, f"took {cpu_seconds() - before:.1f} s"
        assert peak_megabytes() < MEGABYTES, f"took {peak_megabytes():.0f} MB"
    print(dict(ends))  # noqa: T201


if __name__ == "__main__":
    main()
