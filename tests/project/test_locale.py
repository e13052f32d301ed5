"""The locale: names are bytes, and come out as the same bytes whatever the locale."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crnr_cli import cli
from crnr_cli.gallery.file import load_gallery
from helpers.each import check_each
from helpers.runner import Runner, read_rows
from helpers.samples import draw_image, make_images

CLASSES = ("café", "日本", os.fsdecode(b"not \xff utf-8"))
PRINT_ENCODING = "import sys; print(sys.getfilesystemencoding())"
Environment = dict[str, str]


def environment(**changes: str) -> Environment:
    """Ours, without anything that decides how Python decodes names."""
    decisive = ("LANG", "LC_ALL", "LC_CTYPE", "PYTHONUTF8", "PYTHONCOERCECLOCALE", "PYTHONIOENCODING")
    return {name: value for name, value in os.environ.items() if name not in decisive} | changes


def latin_1(folder: Path) -> Environment:
    if shutil.which("localedef") is None:
        pytest.skip("localedef is not installed")
    place = folder / "de_DE.ISO-8859-1"
    subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", str(place)], capture_output=True, check=False
    )
    return environment(LOCPATH=str(folder), LC_ALL="de_DE.ISO-8859-1")


def ascii_only(folder: Path) -> Environment:
    return environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")


@pytest.mark.slow
@pytest.mark.parametrize(("locale", "encoding"), [(latin_1, "iso8859-1"), (ascii_only, "ascii")])
def test_the_same_bytes_in_another_locale(
    crnr: Runner,
    tmp_path_factory: pytest.TempPathFactory,
    locale: Callable[[Path], Environment],
    encoding: str,
) -> None:
    other = locale(tmp_path_factory.mktemp("locales"))
    found = crnr.process(program=(sys.executable, "-c", PRINT_ENCODING), env=other).out.strip()
    if found != encoding:
        pytest.skip(f"Python uses {found} here")
    for number, name in enumerate(CLASSES):
        (crnr.here / "gallery" / name).mkdir(parents=True)
        for sample in range(3):
            draw_image(number, sample).save(crnr.here / "gallery" / name / f"{sample} é.png")
    np.savez(crnr.here / "features.npz", features=np.eye(4), labels=["é", "é", "日", "日"])
    results = []
    for env in (environment(LC_ALL="C.UTF-8"), other):
        outcomes = [
            crnr.process(*command.split(), env=env)
            for command in (
                "build gallery -q",
                "classify gallery -q -o out.csv",
                "evaluate gallery --json --errors errors.csv",
                "info --json",
                "build features.npz -o features.h5 -q",
                "evaluate features.npz -g features.h5 --json -q",
                "build gallery/nö",
            )
        ]
        files = {name: (crnr.here / name).read_bytes() for name in crnr.files() if name != "gallery"}
        results.append((outcomes, files))
    assert results[0] == results[1]
    assert [outcome.exit for outcome in outcomes] == [0, 0, 0, 0, 0, 0, 1]
    assert load_gallery(crnr.here / "gallery.h5").classes == sorted(CLASSES)
    assert {row["label"] for row in read_rows(crnr.here / "out.csv")} == set(CLASSES)
    assert load_gallery(crnr.here / "features.h5").classes == ["é", "日"]


SETTINGS: list[Environment] = [
    {"PYTHONIOENCODING": "cp1252"},
    {"PYTHONIOENCODING": "ascii:strict"},
    {"PYTHONIOENCODING": "utf-16", "PYTHONUTF8": "0", "LC_ALL": "C"},
    {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "POSIX"},
]
COMMANDS = ("classify gallery", "info --list-examples", "evaluate gallery", "add gallery.h5 gallery/nö")


@pytest.mark.slow
def test_output_is_utf_8_in_any_locale(crnr: Runner) -> None:
    """As data, with \\n at the end of lines; in messages, bytes that are no text are shown as escapes."""
    for number, name in enumerate(CLASSES):
        (crnr.here / "gallery" / name).mkdir(parents=True)
        for sample in range(3):
            draw_image(number, sample).save(crnr.here / "gallery" / name / f"{sample} ☃.png")
    assert crnr("build", "gallery", "-q").exit == 0

    def printed(command: str, env: Environment) -> tuple[bytes, bytes]:
        with Path("out").open("wb") as out, Path("err").open("wb") as err:
            crnr.process(*command.split(), env=env, stdout=out, stderr=err)
        return Path("out").read_bytes(), Path("err").read_bytes()

    expected = {command: printed(command, environment(LC_ALL="C.UTF-8")) for command in COMMANDS}
    for command, (out, err) in expected.items():
        assert b"\r" not in out + err
        assert b"Traceback" not in err
        err.decode("utf-8")
        assert command.startswith("add") or "日本".encode() in out
    assert expected[COMMANDS[-1]][1].startswith("error: gallery/nö: no such file or folder".encode())

    def check(changes: Environment) -> None:
        assert {command: printed(command, environment(**changes)) for command in COMMANDS} == expected

    check_each(SETTINGS, check)


@pytest.mark.slow
def test_no_file_is_opened_with_the_encoding_of_the_system(crnr: Runner) -> None:
    """Python warns of one, which is an error here; each command is a process, and starts others."""
    make_images(crnr.here / "gallery")
    (crnr.here / "labels.csv").write_bytes(b"path,label\ngallery/ant/0.png,ant\ngallery/bee/0.png,bee\n")
    warned = environment(PYTHONWARNDEFAULTENCODING="1", PYTHONWARNINGS="error::EncodingWarning")
    for command in (
        "build gallery --calibrate",
        "build gallery --labels labels.csv -o labelled.h5",
        "classify gallery -o out.csv",
        "evaluate out.csv --errors errors.csv",
        "audit gallery.h5 --csv audit.csv",
        "explain gallery/ant/0.png",
        "sort out.csv sorted",
        "split gallery --train g --test q",
        "extract gallery -o features.h5",
        "add gallery.h5 g/ant/0.png --class ant",
        "verify gallery.h5",
    ):
        outcome = crnr.process(*command.split(), env=warned)
        assert outcome.exit in (0, 3), outcome.err
        assert "EncodingWarning" not in outcome.err


def test_crnr_starts_again_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If UTF-8 mode did not help, there is nothing else to try."""
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: started.append(arguments))
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "iso8859-1")
    monkeypatch.setattr(sys, "orig_argv", ["python", "-W", "error", "/bin/crnr", "info"])
    monkeypatch.setenv("PYTHONUTF8", "0")
    cli._use_utf8()
    assert started == [[sys.executable, "-X", "utf8", "-W", "error", "/bin/crnr", "info"]]
    assert os.environ["PYTHONUTF8"] == "1"
    monkeypatch.setattr(sys, "flags", type("Flags", (), {"utf8_mode": 1}))
    cli._use_utf8()
    assert len(started) == 1
