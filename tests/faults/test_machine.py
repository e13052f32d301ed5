"""The machine: cron, decoders that crash, too little memory, read-only folders, no network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.faults import CLASSIFY, GOOD, Case, labelled
from helpers.patches import set_free_bytes, use_decoder
from helpers.runner import KERNEL, helper_command, without_root
from helpers.samples import draw_image, make_images


@pytest.mark.fault(8, "Cron: `LANG=C`, no HOME, no terminal, stdin closed")
def test_cron(case: Case) -> None:
    """crnr writes the same bytes as in a terminal."""
    make_images(case.here / "gallery", ["caf\u00e9", "tea"])
    case.build()
    case("classify", "gallery", "-o", "here.csv")
    bare = {"LANG": "C", "PATH": os.environ["PATH"], **KERNEL}
    case.run(
        "classify gallery -o out.csv",
        exit=0,
        err=[labelled(8, 8)],
        env=bare,
        preexec_fn=lambda: os.close(0),
        shown="env -i LANG=C PATH=$PATH crnr classify gallery -o out.csv <&-",
    )
    assert Path("out.csv").read_bytes() == Path("here.csv").read_bytes()
    in_cron = case.run(
        "evaluate out.csv",
        exit=0,
        out=None,
        env=bare,
        shown="env -i LANG=C PATH=$PATH crnr evaluate out.csv",
    )
    assert in_cron.out == case("evaluate", "out.csv").out
    case.run(
        "build gallery -o cron.h5 -q",
        exit=0,
        env=bare,
        shown="env -i LANG=C PATH=$PATH crnr build gallery -o cron.h5 -q",
    )
    assert Path("cron.h5").read_bytes() == Path("gallery.h5").read_bytes()


@pytest.mark.fault(16, "A decoder that hangs or crashes")
def test_a_decoder_that_hangs_or_crashes(case: Case, queries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that image has no answer; the run continues."""
    for name in ("crash.png", "exit.png", "hang.png", "last.png"):
        draw_image(0, 1).save(queries / name)
    use_decoder(helper_command("helpers.bad_decoder"), monkeypatch.setattr, seconds=2)
    case.run(
        CLASSIFY,
        exit=3,
        err=[
            labelled(2, 5),
            "failed: queries/crash.png: decode_error, the decoder crashed (signal 11)",
            "failed: queries/exit.png: decode_error, the decoder ended (exit 7)",
            "failed: queries/hang.png: decode_error, the decoder did not reply within 2 s",
        ],
        statuses=GOOD
        | {f"queries/{name}.png": "decode_error" for name in ("crash", "exit", "hang")}
        | {"queries/last.png": "ok"},
    )


@pytest.mark.fault(41, "A gallery that is too large for the memory")
def test_too_large_for_memory(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory is estimated from the shapes before anything is read. If it is not enough, the error gives
    both numbers and a remedy. (In this example, the machine has very little free memory.)
    """
    make_images(case.here / "gallery")
    for free, message in (
        (
            1000,
            "reading 12 examples with 128 features each needs 6.1 kB of memory, but 1.0 kB are free; "
            "use a smaller --size or --pca",
        ),
        (
            10_000,
            "fitting method crnr to 12 examples with vectors of length 128 needs 34.8 kB of memory, but "
            "10.0 kB are free; "
            "use --neighbors, --pca or fewer examples",
        ),
    ):
        set_free_bytes(free, monkeypatch.setattr)
        case.run("build gallery", exit=1, err=[f"error: {message}"])
        assert not Path("gallery.h5").exists()
    set_free_bytes(None, monkeypatch.setattr)  # unknown: the work is tried
    case.build("gallery")
    set_free_bytes(100, monkeypatch.setattr)
    needed = f"{Path('gallery.h5').stat().st_size / 1000:.1f} kB"
    case.run(
        "classify gallery/ant",
        exit=1,
        err=[
            f"error: gallery.h5: the gallery needs {needed} of memory, but 100.0 bytes are free; "
            "classify on a larger machine, or build the gallery with --neighbors or --pca"
        ],
    )


@pytest.mark.fault(43, "Inputs in read-only folders")
def test_read_only_inputs(case: Case) -> None:
    """This works, as crnr never writes to the folders of the inputs."""
    make_images(case.here / "inputs" / "gallery")
    before = snapshot(Path("inputs"))
    folders = [Path("inputs"), *(path for path in Path("inputs").rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    Path("work").mkdir()
    Path("work").chmod(0o777)
    nobody = without_root()
    case.run("build ../inputs/gallery -q", exit=0, cwd=case.here / "work", **nobody)
    case.run(
        "classify ../inputs/gallery -o out.csv",
        exit=0,
        cwd=case.here / "work",
        **nobody,
        err=[labelled(12, 12)],
    )
    for folder in folders:
        folder.chmod(0o755)
    assert snapshot(Path("inputs")) == before
    assert {path.name for path in Path("work").iterdir()} == {"gallery.h5", "out.csv"}


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


# Python runs this at the start of every process, including decoders; it records every use of a network.
WATCH = """
import sys
def note(event, args):
    if event.startswith("socket.") or event in ("urllib.Request", "http.client.connect"):
        with open({log!r}, "a") as log:
            log.write(event + "\\n")
sys.addaudithook(note)
"""


@pytest.mark.fault(44, "No network")
def test_no_network(case: Case) -> None:
    """crnr does not need one: only `crnr model get` downloads something, and no command sends anything."""
    make_images(case.here / "gallery")
    Path("watch").mkdir()
    Path("watch/sitecustomize.py").write_text(WATCH.format(log=str(case.here / "log")))
    watched = os.environ | {"PYTHONPATH": str(case.here / "watch")}
    seen = subprocess.run([sys.executable, "-c", "import socket; socket.socket()"], env=watched, check=True)
    assert seen.returncode == 0
    assert Path("log").read_text() == "socket.__new__\n"  # the hook works
    Path("log").unlink()
    case.run("build gallery -q", exit=0, env=watched)
    case.run("classify gallery -o out.csv", exit=0, env=watched, err=[labelled(12, 12)])
    case.run("evaluate out.csv --json", exit=0, env=watched, out=None)
    assert case.files() == {"gallery", "watch", "gallery.h5", "out.csv"}
