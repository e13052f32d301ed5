"""crnr on macOS and Windows, as far as Linux can imitate them: every command gives what it gives on Linux."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet
import pytest
import scipy.io

from helpers.imitation import LINUX, MACOS, OTHERS, WINDOWS, On, environment
from helpers.pausing import start_pausing
from helpers.runner import Outcome, Runner, ended, helper_command
from helpers.samples import make_features, make_images

# What is run, in this order: the later commands use what the earlier ones wrote.
SESSION = """
--version
build gallery --calibrate
build numbers.mat -o mat.h5
build texts.h5 -o texts-gallery.h5
build numbers.parquet -o parquet.h5
build many.npz -o large.h5 --neighbors 5
build many.npz -o large.h5 --neighbors 5 --index ivf
add large.h5 more.npz
rename large.h5 cow emu
remove large.h5 --class emu
classify more.npz -g large.h5 -o large.csv
classify queries -o out.csv --batch-size 2
classify queries --top 2
classify more.npz -g large.h5 -o large.jsonl
evaluate out.csv --html scores.html --errors errors.csv
explain queries/ant/4.png -o why.png
explain queries/ant/4.png --json
info --json
add gallery.h5 more
rename gallery.h5 bee wasp
remove gallery.h5 --class wasp
verify gallery.h5
build gallery more --update
extract gallery -o features.h5
extract gallery more -o features.h5 --update
build gallery -o cached.h5 --cache features.h5
audit gallery.h5 --csv audit.csv --html audit.html
tune gallery --budget 600 -o tuned.h5 --methods nn,crc --jobs 1
review out.csv -o review.html
sort out.csv copied
sort out.csv hardlinked --how hardlink
sort out.csv linked --how link
sort --undo linked/.crnr-sort-1.jsonl
split gallery --train half --test rest
sort out.csv moved --how move
sort --undo moved/.crnr-sort-1.jsonl
sort --undo copied/.crnr-sort-1.jsonl
"""
COMMANDS = SESSION.strip().splitlines()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images, and features in every format that a child process reads."""
    start = tmp_path_factory.mktemp("start")
    make_images(start / "gallery")
    make_images(start / "queries", first=4, per_class=2)
    make_images(start / "more", first=8, per_class=2)
    make_features(start / "many.npz", per_class=700, dimension=200)  # more than a block, so that it is mapped
    make_features(start / "more.npz", per_class=5, dimension=200, seed=1)
    with np.load(start / "more.npz") as more:
        features, labels = more["features"], more["labels"]
    scipy.io.savemat(start / "numbers.mat", {"features": features, "labels": labels.astype(object)})
    table = pyarrow.table({"features": list(features), "labels": labels.tolist()})
    pyarrow.parquet.write_table(table, start / "numbers.parquet")
    with h5py.File(start / "texts.h5", "w") as file:
        file["features"] = features
        file.create_dataset("labels", data=labels.astype(object), dtype=h5py.string_dtype())
    return start


class Session:
    """All commands on one system, each in a process of its own."""

    def __init__(self, system: str, start: Path, folder: Path) -> None:
        self.on = On(system, folder / f"{system:_<6}")  # paths of the same length, as some outputs have them
        shutil.copytree(start, self.on.here)  # copies the times too
        self.ended = {command: self._run(command) for command in COMMANDS}

    def _run(self, command: str) -> Outcome:
        outcome = self.on(*command.split(), stdout=-1)
        return Outcome(outcome.exit, self._same(outcome.out), self._same(outcome.err))

    def _same(self, text: str) -> str:
        """Without the moment, and how long it took."""
        text = text.replace(self.on.here.name, "SYSTEM")
        return re.sub(r"\b\d+\.\d s\b|\d{4}-\d\d-\d\d \d\d:\d\d", "", text)

    def files(self) -> dict[str, bytes]:
        """Without the moment, which is in every page, and the key of decisions, which a folder decides."""
        own = self.on.here.name.encode()
        moment = re.compile(rb"\d{4}-\d\d-\d\d, \d\d:\d\d UTC|\b[0-9a-f]{32}\b")
        return {
            str(path.relative_to(self.on.here)): moment.sub(b"", path.read_bytes().replace(own, b"SYSTEM"))
            for path in sorted(self.on.here.rglob("*"))
            if path.is_file()
        }


@pytest.fixture(scope="module")
def on_linux(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Session:
    return Session(LINUX, start, tmp_path_factory.mktemp("session"))


@pytest.fixture(scope="module", params=OTHERS)
def elsewhere(
    request: pytest.FixtureRequest, start: Path, on_linux: Session, tmp_path_factory: pytest.TempPathFactory
) -> Session:
    return Session(request.param, start, on_linux.on.here.parent)


def test_emulated_systems_lack_linux_features(tmp_path: Path) -> None:
    """Functions missing there are missing for crnr, and calls refused there are refused."""
    said = On(MACOS, tmp_path).python(
        "import os, resource, sys, signal\n"
        "print(sys.platform, hasattr(os, 'sched_getaffinity'), hasattr(signal, 'SIGPIPE'))\n"
        "try: resource.setrlimit(resource.RLIMIT_AS, (1 << 40, -1))\n"
        "except ValueError as e: print(e)\n"
        "try: open('/proc/self/status')\n"
        "except FileNotFoundError: print('no /proc')\n"
    )
    assert said.out == "darwin False True\ncurrent limit exceeds maximum limit\nno /proc\n", said.err
    (tmp_path / "file").write_bytes(b"x")
    said = On(WINDOWS, tmp_path).python(
        "import os, sys, signal, pathlib, msvcrt\n"
        "missing = [name for name in ('fork', 'O_DIRECTORY', 'fchmod', 'pwrite') if hasattr(os, name)]\n"
        "print(sys.platform, missing, hasattr(signal, 'SIGALRM'))\n"
        "try: import fcntl\n"
        "except ModuleNotFoundError: print('no fcntl')\n"
        "def refused(action):\n"
        "    try: action()\n"
        "    except (PermissionError, NotImplementedError, FileExistsError) as e: print(type(e).__name__)\n"
        "with open('file', 'r+b') as file, open('file', 'r+b') as other:\n"
        "    refused(pathlib.Path('file').unlink)\n"
        "    refused(lambda: os.replace('file', 'new'))\n"
        "    msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)\n"
        "    refused(lambda: msvcrt.locking(other.fileno(), msvcrt.LK_NBLCK, 1))\n"
        "import numpy as np\n"
        "mapped = np.memmap('file')\n"
        "refused(lambda: os.replace('file', 'new'))\n"
        "refused(lambda: os.open('.', os.O_RDONLY))\n"
        "refused(lambda: os.stat('file', dir_fd=3))\n"
        "open('new', 'wb').close()\n"
        "refused(lambda: os.rename('new', 'file'))\n"
    )
    kinds = ["PermissionError"] * 5 + ["NotImplementedError", "PermissionError"]
    assert said.out.splitlines() == ["win32 [] False", "no fcntl", *kinds], said.err


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_ends_as_on_linux(command: str, elsewhere: Session, on_linux: Session) -> None:
    assert on_linux.ended[command].exit == 0, on_linux.ended[command].err
    assert elsewhere.ended[command] == on_linux.ended[command]


@pytest.mark.slow
def test_every_file_has_the_bytes_that_it_has_on_linux(elsewhere: Session, on_linux: Session) -> None:
    here, there = on_linux.files(), elsewhere.files()
    assert there.keys() == here.keys()
    assert [name for name in here if here[name] != there[name]] == []
    assert not [name for name in here if ".crnr-lock" in name or ".crnr-part" in name]


@pytest.fixture(params=OTHERS)
def on(request: pytest.FixtureRequest, tmp_path: Path) -> On:
    return On(request.param, tmp_path)


@pytest.fixture
def built(on: On) -> On:
    make_features(on.here / "gallery.npz")
    assert on("--version").exit == 0
    outcome = on("build", "gallery.npz", "-q")
    assert (outcome.exit, outcome.err) == (0, "")
    return on


CLASSIFY = "classify gallery.npz -o out.csv --batch-size 1"


@pytest.mark.slow
def test_a_run_that_was_killed_is_resumed(built: On) -> None:
    on = built
    assert on(*CLASSIFY.split()).exit == 0
    whole = (on.here / "out.csv").read_bytes()
    assert whole == On(LINUX, on.here)("classify", "gallery.npz", "--batch-size", 1).out.encode()
    (on.here / "out.csv").write_text("old")
    run = start_pausing(Runner(on.here), CLASSIFY, env=environment(on.system))
    second = on(*CLASSIFY.split())
    assert (second.exit, second.err) == (
        1,
        "error: out.csv: another crnr is writing it; wait, or choose another file\n",
    )
    run.kill()
    ended(run)
    assert (on.here / "out.csv").read_text() == "old"
    assert (on.here / "out.csv.crnr-lock").exists()  # which is free now
    resumed = on(*CLASSIFY.split(), "--resume")
    assert resumed.err.splitlines()[0] == "note: 2 of 15 queries were done by the earlier run"
    assert (on.here / "out.csv").read_bytes() == whole
    assert Runner(on.here).files() == {"gallery.npz", "gallery.h5", "out.csv"}


LONG_BATCH = """
import os, sys, typer
from crnr_cli.cli.boundary import boundary, finishing_batches
from crnr_cli.progress import silent
from crnr_cli.system.cores import run_side_by_side
try:
    with boundary(), finishing_batches(silent, "; it can be continued"):
        print("begun", flush=True)
        list(run_side_by_side(lambda size: os.read(0, size), [1], 1, wait=False))
except typer.Exit as e:
    sys.stderr.flush()
    os._exit(e.exit_code)
"""


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_long_batch(on: On) -> None:
    read, write = os.pipe()  # nothing is written, so that the batch has no end
    run = Runner(on.here).start(program=on.part_of_crnr(LONG_BATCH), env=environment(on.system), stdin=read)
    assert run.stdout is not None
    assert run.stdout.readline() == b"begun\n"
    run.send_signal(signal.SIGINT)
    outcome = ended(run)
    assert (outcome.exit, outcome.err) == (130, "interrupted; it can be continued\n")
    os.close(read)
    os.close(write)


def test_the_reader_of_stdout_goes_away(built: On) -> None:
    """Windows reports EINVAL, without a file name."""
    code = {MACOS: errno.EPIPE, WINDOWS: errno.EINVAL}[built.system]
    said = built.python(
        "import sys, os, typer\n"
        "from crnr_cli.cli.boundary import boundary\n"
        "try:\n"
        f"    with boundary(): raise OSError({code}, os.strerror({code}))\n"
        "except typer.Exit as e: sys.exit(e.exit_code)\n"
    )
    assert (said.exit, said.out, said.err) == (141, "", "")
    read, write = os.pipe()
    os.close(read)
    outcome = built("classify", "gallery.npz", stdout=write)
    os.close(write)
    assert (outcome.exit, outcome.err) == (141, "")


def test_a_file_that_another_program_has_open_is_not_replaced_on_windows(tmp_path: Path) -> None:
    """As a spreadsheet does it. Everything that was finished is kept, and nothing is lost."""
    on = On(WINDOWS, tmp_path)
    said = on.python(
        "from pathlib import Path\n"
        "from crnr_cli.errors import OutputError\n"
        "from crnr_cli.system import files\n"
        "files._PATIENCE = 0.2\n"
        "path = Path('out.csv'); path.write_bytes(b'old')\n"
        "with path.open('rb') as spreadsheet:\n"
        "    try:\n"
        "        with files.replacing(path): print('not reached')\n"
        "    except OutputError as e: print(e)\n"
        "try:\n"
        "    with files.claimed(path, keep=True) as claim:\n"
        "        with claim.open_journal() as journal: journal.write(b'batches')\n"
        "        claim.file.write(b'new')\n"
        "        spreadsheet = path.open('rb')\n"
        "        claim.put_in_place()\n"
        "except OutputError as e: print(e)\n"
        "print(sorted(path.name for path in Path('.').iterdir()), path.read_bytes())\n"
        "spreadsheet.close()\n"
        "with files.claimed(path, keep=True) as claim: claim.put_in_place()\n"
        "print(sorted(path.name for path in Path('.').iterdir()), path.read_bytes())\n"
    )
    refused = (
        "out.csv: another program has this file open, so crnr cannot replace it; close it there, and run the "
        "command again"
    )
    kept = ["out.csv", "out.csv.crnr-journal", "out.csv.crnr-part"]
    assert said.out.splitlines() == [refused, refused, f"{kept} b'old'", "['out.csv'] b'new'"], said.err


@pytest.mark.parametrize(("how", "ending"), [("link", ".crnr-part"), ("folder", ".crnr-lock")])
def test_links_with_our_names_are_not_followed(on: On, how: str, ending: str) -> None:
    make_features(on.here / "gallery.npz")
    (on.here / "victim").write_bytes(b"secret")
    place = on.here / f"gallery.h5{ending}"
    place.symlink_to("victim") if how == "link" else place.mkdir()
    outcome = on("build", "gallery.npz")
    assert outcome.exit == 1
    assert f"crnr needs the name gallery.h5{ending}, which is a link, a folder or the like" in outcome.err
    said = on.python(
        "from pathlib import Path\n"
        "from crnr_cli.errors import OutputError\n"
        "from crnr_cli.system import files\n"
        "try: files._open_own_file(Path('gallery.h5" + ending + "'), Path('x'))\n"
        "except OutputError: print('refused')\n"
    )
    assert said.out == "refused\n", said.err
    assert (on.here / "victim").read_bytes() == b"secret"


def test_a_link_among_the_folders_is_refused(on: On) -> None:
    make_images(on.here / "images", ("ant",), per_class=1)
    (on.here / "out.csv").write_text("path,truth,label\nimages/ant/0.png,,ant\n")
    (on.here / "sorted").mkdir()
    (on.here / "elsewhere").mkdir()
    (on.here / "sorted" / "ant").symlink_to("../elsewhere")
    outcome = on("sort", "out.csv", "sorted")
    assert outcome.exit == 1
    assert "sorted/ant: is a link or a file, and a folder is needed there" in outcome.err
    assert list((on.here / "elsewhere").iterdir()) == []


# Children that do not end; the parent ends them.
HUNGRY = "import time; found = b'x' * 2**28; time.sleep(60)"
ENDLESS = "while True: pass"


@pytest.mark.slow
@pytest.mark.parametrize(("code", "limits"), [(HUNGRY, "2**26, None"), (ENDLESS, "None, 0.5")])
def test_a_child_that_takes_too_much_is_ended(on: On, code: str, limits: str) -> None:
    """By the parent, as the child does nothing about it. On macOS, its time is limited by the kernel."""
    if code == ENDLESS and on.system == MACOS:
        code = f"from crnr_cli.system.child import limit_cpu_time; limit_cpu_time(0.5)\n{code}"
    command = [sys.executable, "-c", code]
    said = on.python(
        "import subprocess\n"
        "from crnr_cli.system.child import NO_WINDOW, under_guard\n"
        f"with subprocess.Popen({command!r}, creationflags=NO_WINDOW) as process:\n"
        f"    with under_guard(process, {limits}) as guard:\n"
        "        process.wait(50)\n"
        "        print(guard.is_out_of_memory, guard.is_out_of_time)\n"
    )
    assert said.out == f"{code == HUNGRY} {code != HUNGRY}\n", said.err


def test_an_image_that_takes_too_much_memory_costs_one_row(on: On) -> None:
    make_images(on.here / "gallery")
    said = on.python(
        "import json\n"
        "from pathlib import Path\n"
        "from crnr_cli.images import pixels\n"
        "from crnr_cli.images.pixels import PixelRequest\n"
        "from crnr_cli.images.pool import DecoderPool\n"
        "pixels.BASE_BYTES = 2**26\n"
        f"command = {list(helper_command('helpers.bad_decoder'))!r}\n"
        "paths = ['gallery/ant/0.png', 'gallery/ant/hungry.png', 'gallery/ant/1.png']\n"
        "Path(paths[1]).write_bytes(Path(paths[0]).read_bytes())\n"
        "found = DecoderPool(1, command=command).decode(paths, PixelRequest(None, max_pixels=64))\n"
        "print(json.dumps([getattr(one, 'status', 'ok') for one in found]))\n"
    )
    assert said.err == ""
    assert json.loads(said.out) == ["ok", "too_large", "ok"]


def test_cores_and_memory_match_linux(on: On) -> None:
    """Cores and memory are those that Linux knows of."""
    code = (
        "from crnr_cli.system.cores import available_cores\n"
        "from crnr_cli.system.memory import free_bytes\n"
        "print(available_cores(), free_bytes())\n"
    )
    cores, free = map(int, on.python(code).out.split())
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total = 1024 * int(meminfo["MemTotal"].split()[0])
    assert cores == {MACOS: os.cpu_count(), WINDOWS: len(os.sched_getaffinity(0))}[on.system]
    assert 0 < free <= total
