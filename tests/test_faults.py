"""What goes wrong for people who run crnr, one test a fault: exit code, stdout, stderr, status, disk.

docs/faults.md is made of what these tests see: each compares its own section of that page with what crnr
said, and `pytest tests/test_faults.py --update-docs` writes the page anew.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from crnr_cli.gallery.file import load_gallery
from crnr_cli.jobs import classify as classify_job
from crnr_cli.pictures import pool as decoding
from crnr_cli.system import memory
from helpers.paths import DOCS, TESTS
from helpers.runner import Outcome, Runner, read_rows, rows, without_root
from helpers.samples import make_features, make_pictures, picture

PAGE = DOCS / "faults.md"
INTRODUCTION = """\
# What goes wrong, and what crnr does

A bad query costs one row: its `status` says why, the run goes on, and the exit code is 3. A bad gallery, a
bad source of one, or a bad option is one line on stderr and exit code 1 or 2. What was there before is never
lost. `--strict` stops at the first input that has to be skipped, `--max-failure-rate` at too many of them.

This page is written by `tests/test_faults.py` from what crnr did there; do not edit it.
"""
TIMINGS = re.compile(r"; \d+\.\d s, \d+\.\d MB")


class Case(Runner):
    """A runner that checks what crnr says and keeps it for the page."""

    def __init__(self, here: Path) -> None:
        super().__init__(here)
        self.transcript: list[str] = []

    def run(
        self,
        *args: str,
        exit: int,
        err: Sequence[str] = (),
        out: str | None = "",
        statuses: dict[str, str] | None = None,
        stdin: bytes = b"",
        shown: str | None = None,
        **process: object,
    ) -> Outcome:
        """Run crnr, in a process if that needs options; `statuses` are those of the CSV, by file."""
        outcome = self.process(*args, **process) if process else self(*args, stdin=stdin)
        self.check(outcome, shown or "crnr " + shlex.join(args), exit, err, out, statuses)
        return outcome

    def check(
        self,
        outcome: Outcome,
        shown: str,
        exit: int,
        err: Sequence[str] = (),
        out: str | None = "",
        statuses: dict[str, str] | None = None,
    ) -> None:
        said = TIMINGS.sub("", outcome.err).splitlines()
        assert said == list(err)
        assert outcome.exit == exit
        assert out is None or outcome.out == out
        lines = [f"$ {shown}", *said, f"exit {exit}"]
        if statuses is not None:
            table = read_rows(self.here / "out.csv") if outcome.out == "" else rows(outcome.out)
            found = {row["path"]: row["status"] for row in table}
            assert found == statuses
            lines += [f"{ascii(path)[1:-1]}: {status}" for path, status in found.items() if status != "ok"]
        self.transcript += ["    " + ascii_only(line) for line in lines] + [""]

    def build(self, *args: str) -> None:
        """A gallery that is not what the test is about."""
        outcome = self("build", *(args or ("gallery",)), "-q")
        assert (outcome.exit, outcome.out, outcome.err) == (0, "", "")

    def section(self, number: int, doc: str) -> str:
        title, _, about = doc.partition("\n")
        about = " ".join(about.split())
        return "\n".join([f"## {number}. {title}", "", *([about, ""] if about else []), *self.transcript])


def ascii_only(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


@pytest.fixture
def case(crnr: Runner, request: pytest.FixtureRequest) -> Iterator[Case]:
    case = Case(crnr.here)
    yield case
    number = int(request.node.originalname.split("_")[2])
    section = case.section(number, request.function.__doc__)
    if request.config.getoption("--update-docs"):
        sections = written_sections() | {number: section}
        PAGE.write_text("\n".join([INTRODUCTION, *(sections[n] for n in sorted(sections))]))
    assert written_sections().get(number) == section, "docs/faults.md is old; run this with --update-docs"


def written_sections() -> dict[int, str]:
    text = PAGE.read_text() if PAGE.exists() else ""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    last = len(parts) - 1
    return {
        int(part[3:].split(".")[0]): part if i == last else part.removesuffix("\n")
        for i, part in enumerate(parts)
    }


def test_the_page_has_every_fault_and_no_other() -> None:
    tested = {int(name.split("_")[2]) for name in globals() if name.startswith("test_fault_")}
    assert tested == set(range(1, 45))
    assert set(written_sections()) == tested
    assert PAGE.read_text().startswith(INTRODUCTION)


def make_queries(folder: str = "queries") -> Path:
    """One good picture of the class ant, queries/good.png."""
    Path(folder).mkdir()
    picture(0, 99).save(Path(folder) / "good.png")
    return Path(folder)


def labelled(answered: int, total: int, name: str = "out.csv") -> str:
    return f"{answered} of {total} inputs labelled: {name}"


def without(*reasons: str) -> str:
    return f"without an answer: {', '.join(reasons)} (see the column status)"


GOOD = {"queries/good.png": "ok"}
CLASSIFY = ("classify", "queries", "-o", "out.csv")


def test_fault_01_constant_picture(case: Case) -> None:
    """All-black or constant picture: zero norm

    Never NaN, never a class; in a gallery the sample is left out and named.
    """
    make_pictures(case.here / "gallery")
    Image.new("L", (8, 8), 0).save("gallery/ant/black.png")
    why = "nothing to compare: all values are zero or one colour"
    case.run(
        "build", "gallery", exit=3,
        err=[
            f"left out: gallery/ant/black.png: {why}",
            "gallery.h5: 3 classes, 12 samples, dimension 64, crnr, dense",
        ],
    )  # fmt: skip
    queries = make_queries()
    Image.new("L", (8, 8), 0).save(queries / "black.png")
    Image.new("RGB", (8, 8), "teal").save(queries / "teal.png")
    case.run(
        *CLASSIFY, exit=3,
        err=[
            labelled(1, 3),
            f"no answer: queries/black.png: zero_norm, {why}",
            f"no answer: queries/teal.png: zero_norm, {why}",
            without("2 zero_norm"),
        ],
        statuses=GOOD | {"queries/black.png": "zero_norm", "queries/teal.png": "zero_norm"},
    )  # fmt: skip
    assert "nan" not in Path("out.csv").read_text()
    assert [row["label"] for row in read_rows(Path("out.csv"))] == ["", "ant", ""]


def test_fault_02_one_class(case: Case) -> None:
    """A gallery of one class

    Build warns; classify refuses, as every answer would be the same.
    """
    make_pictures(case.here / "gallery", ["ant"])
    case.run(
        "build", "gallery", exit=0,
        err=[
            "note: only one class, ant: classify will refuse this gallery",
            "gallery.h5: 1 class, 4 samples, dimension 64, crnr, dense",
        ],
    )  # fmt: skip
    make_queries()
    case.run(*CLASSIFY, exit=1, err=["error: the gallery has one class, ant: every answer would be the same"])
    assert case.files() == {"gallery", "gallery.h5", "queries"}


def test_fault_03_odd_numbers_of_samples(case: Case) -> None:
    """One sample a class; more samples than dimensions; duplicates

    All work: the factor is regularized.
    """
    make_features(case.here / "queries.npz", per_class=2, dimension=4, seed=9)
    for name, per_class, copies in [("one", 1, 1), ("many", 40, 1), ("twice", 3, 2)]:
        make_features(case.here / f"{name}.npz", per_class=per_class, dimension=4)
        sources = [f"{name}.npz"] * copies
        case.build(*sources, "-o", f"{name}.h5")
        case.run(
            "classify", "queries.npz", "-g", f"{name}.h5", "-o", "out.csv", exit=0, err=[labelled(6, 6)],
            statuses={f"queries.npz#{i}": "ok" for i in range(6)},
        )  # fmt: skip
        answers = read_rows(Path("out.csv"))
        assert [row["label"] for row in answers] == [row["truth"] for row in answers]


def test_fault_04_classes_that_look_the_same(case: Case) -> None:
    """`Cat/` and `cat/`, or one name in two Unicode forms

    An error that names both.
    """
    make_pictures(case.here / "gallery", ["Cat", "cat"])
    case.run(
        "build", "gallery", exit=1,
        err=["error: classes 'Cat' and 'cat' differ only in case or Unicode form; rename one"],
    )  # fmt: skip
    make_pictures(case.here / "forms", ["caf\u00e9", "cafe\u0301"])
    case.run(
        "build", "forms", exit=1,
        err=["error: classes 'cafe\\u0301' and 'caf\\xe9' differ only in case or Unicode form; rename one"],
    )  # fmt: skip
    assert case.files() == {"gallery", "forms"}


def test_fault_05_odd_class_names(case: Case) -> None:
    """Class names with comma, quote, spaces, emoji, leading dash or `=`

    Accepted, quoted where CSV needs it, and the same when read back.
    """
    names = ["a, b", 'say "x"', "  two  spaces ", "\N{ANT}", "-dash", "=1+1"]
    make_pictures(case.here / "gallery", names, per_class=2)
    case.build()
    case.run(
        "classify", "gallery", "-o", "out.csv", exit=0, err=[labelled(12, 12)],
        statuses={f"gallery/{name}/{i}.png": "ok" for name in names for i in (0, 1)},
    )  # fmt: skip
    assert {row["truth"] for row in read_rows(Path("out.csv"))} == set(names)
    outcome = case.run("evaluate", "out.csv", "--json", exit=0, out=None)
    record = json.loads(outcome.out)
    assert {entry["name"] for entry in record["classes"]} == set(names)
    header = read_rows(Path("out.csv"))[0]
    assert {name.removeprefix("residual:") for name in header if name.startswith("residual:")} == set(names)


def test_fault_06_odd_file_names(case: Case) -> None:
    """Newline, tab or quote in a file name

    Quoted in CSV; `-0` reads lists that are separated by NUL.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    names = ["new\nline.png", "tab\t.png", 'quo"te.png']
    for name in names:
        picture(1, 7).save(queries / name)
    expected = GOOD | {f"queries/{name}": "ok" for name in names}
    case.run(*CLASSIFY, exit=0, err=[labelled(4, 4)], statuses=expected)
    by_list = Path("out.csv").read_bytes()
    listed = b"\0".join(os.fsencode(name) for name in sorted(expected))
    case.run(
        "classify", "-0", "-", "-o", "out.csv", exit=0, err=[labelled(4, 4)], statuses=expected, stdin=listed,
        shown="find queries -type f -print0 | sort -z | crnr classify -0 - -o out.csv",
    )  # fmt: skip
    assert Path("out.csv").read_bytes() == by_list


def test_fault_07_names_that_are_not_utf8(case: Case) -> None:
    """A file name that is not UTF-8, such as `caf\\xe9.png`

    Written back as the same bytes in CSV, escaped in JSON.
    """
    name = os.fsdecode(b"caf\xe9")
    make_pictures(case.here / "gallery", [name, "tea"])
    case.build()
    case.run(
        "classify", "gallery", "-o", "out.csv", exit=0, err=[labelled(8, 8)],
        statuses={f"gallery/{folder}/{i}.png": "ok" for folder in (name, "tea") for i in range(4)},
    )  # fmt: skip
    assert b"gallery/caf\xe9/0.png,caf\xe9,caf\xe9," in Path("out.csv").read_bytes()
    outcome = case.run("info", "--json", exit=0, out=None)
    assert '"caf\\udce9": 4' in outcome.out
    for locale in ("C", "C.UTF-8"):
        plain = case.process("info", env=os.environ | {"LC_ALL": locale})
        assert (plain.exit, plain.err) == (0, "")
        assert name in plain.out


def test_fault_08_cron(case: Case) -> None:
    """Cron: `LANG=C`, no HOME, no terminal, stdin closed

    The same bytes as in a terminal.
    """
    make_pictures(case.here / "gallery", ["caf\u00e9", "tea"])
    case.build()
    case("classify", "gallery", "-o", "here.csv")
    bare = {"LANG": "C", "PATH": os.environ["PATH"]}
    case.run(
        "classify", "gallery", "-o", "out.csv", exit=0, err=[labelled(8, 8)], env=bare,
        preexec_fn=lambda: os.close(0),
        shown="env -i LANG=C PATH=$PATH crnr classify gallery -o out.csv <&-",
    )  # fmt: skip
    assert Path("out.csv").read_bytes() == Path("here.csv").read_bytes()
    in_cron = case.run(
        "evaluate", "out.csv", exit=0, out=None, env=bare,
        shown="env -i LANG=C PATH=$PATH crnr evaluate out.csv",
    )  # fmt: skip
    assert in_cron.out == case("evaluate", "out.csv").out
    case.run(
        "build", "gallery", "-o", "cron.h5", "-q", exit=0, env=bare,
        shown="env -i LANG=C PATH=$PATH crnr build gallery -o cron.h5 -q",
    )  # fmt: skip
    assert Path("cron.h5").read_bytes() == Path("gallery.h5").read_bytes()


def test_fault_09_what_systems_leave_behind(case: Case) -> None:
    """`.DS_Store`, `Thumbs.db`, `._x.jpg`, `.ipynb_checkpoints`, `__MACOSX`

    Ignored by rule, counted in one line, never a class.
    """
    make_pictures(case.here / "gallery")
    for junk in (".ipynb_checkpoints", "__MACOSX"):
        make_pictures(case.here / "gallery", [junk], per_class=1)
    for junk in (".DS_Store", "ant/Thumbs.db", "bee/._x.jpg"):
        Path("gallery", junk).write_bytes(b"junk")
    note = "note: 5 system files passed over (.DS_Store, Thumbs.db and the like)"
    case.run(
        "build", "gallery", exit=0,
        err=[note, "gallery.h5: 3 classes, 12 samples, dimension 64, crnr, dense"],
    )  # fmt: skip
    assert load_gallery(Path("gallery.h5")).classes == ["ant", "bee", "cow"]
    case.run(
        "classify", "gallery", "-o", "out.csv", exit=0, err=[note, labelled(12, 12)],
        statuses={f"gallery/{name}/{i}.png": "ok" for name in ("ant", "bee", "cow") for i in range(4)},
    )  # fmt: skip


def test_fault_10_a_readme_among_the_pictures(case: Case) -> None:
    """A README or .xml among the pictures

    `not_image`, counted, does not alone change the exit code.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    (queries / "README").write_text("read me")
    (queries / "notes.xml").write_text("<xml/>")
    case.run(
        *CLASSIFY, exit=0,
        err=[
            labelled(1, 3),
            "no answer: queries/README: not_image, not a picture of a known format",
            "no answer: queries/notes.xml: not_image, not a picture of a known format",
            without("2 not_image"),
        ],
        statuses=GOOD | {"queries/README": "not_image", "queries/notes.xml": "not_image"},
    )  # fmt: skip


def test_fault_11_empty_and_mislabelled_files(case: Case) -> None:
    """An empty file; HTML saved as .jpg

    `empty_file` and `not_image`.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    (queries / "empty.png").write_bytes(b"")
    (queries / "page.jpg").write_text("<html>404</html>")
    case.run(
        *CLASSIFY, exit=3,
        err=[
            labelled(1, 3),
            "no answer: queries/empty.png: empty_file, the file is empty",
            "no answer: queries/page.jpg: not_image, not a picture of a known format",
            without("1 empty_file", "1 not_image"),
        ],
        statuses=GOOD | {"queries/empty.png": "empty_file", "queries/page.jpg": "not_image"},
    )  # fmt: skip


def noise(size: int = 200) -> Image.Image:
    random = np.random.default_rng(3)
    return Image.fromarray(random.integers(0, 256, (size, size), dtype=np.uint8))


def test_fault_12_truncated_pictures(case: Case) -> None:
    """A JPEG or PNG that is cut short

    `truncated`, by a full decode: no grey filler is classified.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    names = ("half.jpg", "half.png", "most.jpg", "most.png")
    for name in names:
        noise().save(queries / name)
        whole = (queries / name).read_bytes()
        (queries / name).write_bytes(whole[: len(whole) // 2 if name.startswith("half") else -100])
    outcome = case(*CLASSIFY)
    # The number of bytes is the JPEG library's own affair.
    tidy = re.sub(r" \(\d+ bytes not processed\)", "", outcome.err)
    case.check(
        Outcome(outcome.exit, outcome.out, tidy), "crnr classify queries -o out.csv", exit=3,
        err=[
            labelled(1, 5),
            "no answer: queries/half.jpg: truncated, image file is truncated",
            "no answer: queries/half.png: truncated, the PNG ends before its last chunk",
            "no answer: queries/most.jpg: truncated, image file is truncated",
            "no answer: queries/most.png: truncated, the PNG ends before its last chunk",
            without("4 truncated"),
        ],
        statuses=GOOD | {f"queries/{name}": "truncated" for name in names},
    )  # fmt: skip


def test_fault_13_flipped_bytes(case: Case) -> None:
    """Flipped bytes inside a picture

    `decode_error` with the decoder's words. PNG has checksums, and they are compared; a JPEG, GIF, BMP or
    TIFF whose altered bytes still decode has no way of telling.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    noise().save(queries / "bad.png")
    data = bytearray((queries / "bad.png").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (queries / "bad.png").write_bytes(data)
    case.run(
        *CLASSIFY, exit=3,
        err=[
            labelled(1, 2),
            "no answer: queries/bad.png: decode_error, the PNG's chunk IDAT has a wrong checksum",
            without("1 decode_error"),
        ],
        statuses=GOOD | {"queries/bad.png": "decode_error"},
    )  # fmt: skip


def test_fault_14_decompression_bomb(case: Case) -> None:
    """A decompression bomb

    `too_large`, from the header, before anything is decoded; `--max-pixels` sets the limit.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    noise(20).save(queries / "bomb.png")
    data = bytearray((queries / "bomb.png").read_bytes())
    data[16:24] = (50_000).to_bytes(4) * 2  # width and height; the checksum of the header comes after it
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4)
    (queries / "bomb.png").write_bytes(data)
    case.run(
        *CLASSIFY, exit=3,
        err=[
            labelled(1, 2),
            "no answer: queries/bomb.png: too_large, 50000 x 50000 pixels, at most 89478485",
            without("1 too_large"),
        ],
        statuses=GOOD | {"queries/bomb.png": "too_large"},
    )  # fmt: skip
    noise(20).save(queries / "bomb.png")
    case.run(
        *CLASSIFY, "--max-pixels", "100", exit=3,
        err=[
            labelled(1, 2),
            "no answer: queries/bomb.png: too_large, 20 x 20 pixels, at most 100",
            without("1 too_large"),
        ],
        statuses=GOOD | {"queries/bomb.png": "too_large"},
    )  # fmt: skip


def test_fault_15_formats_nobody_asked_for(case: Case) -> None:
    """Formats nobody asked for: EPS, which runs Ghostscript, and others

    An allow-list by content: JPEG, PNG, GIF, BMP, TIFF, WebP, PPM and PGM.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    picture(0, 1).convert("RGB").save(queries / "a.eps")
    picture(0, 1).convert("RGB").save(queries / "b.jpg", "EPS")
    picture(0, 1).save(queries / "c.png", "TGA")
    suffixes = ("jpg", "png", "gif", "bmp", "tif", "webp", "pgm")
    for suffix in suffixes:
        picture(0, 1).save(queries / f"fine.{suffix}")
    case.run(
        *CLASSIFY, exit=3,
        err=[
            labelled(8, 11),
            "no answer: queries/a.eps: not_image, not a picture of a known format",
            "no answer: queries/b.jpg: not_image, not a picture of a known format",
            "no answer: queries/c.png: not_image, not a picture of a known format",
            without("3 not_image"),
        ],
        statuses=GOOD
        | {f"queries/{name}": "not_image" for name in ("a.eps", "b.jpg", "c.png")}
        | {f"queries/fine.{suffix}": "ok" for suffix in suffixes},
    )  # fmt: skip


def test_fault_16_a_decoder_that_hangs_or_crashes(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that hangs or crashes

    Only that picture is lost; the run goes on.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    for name in ("crash.png", "exit.png", "hang.png", "last.png"):
        picture(0, 1).save(queries / name)
    bad_decoder = (sys.executable, str(TESTS / "helpers" / "bad_decoder.py"))
    monkeypatch.setattr(decoding, "COMMAND", bad_decoder)
    monkeypatch.setattr(decoding, "SECONDS_A_PICTURE", 2)
    case.run(
        *CLASSIFY, exit=3,
        err=[
            labelled(2, 5),
            "no answer: queries/crash.png: decode_error, the decoder crashed (signal 11)",
            "no answer: queries/exit.png: decode_error, the decoder ended (exit 7)",
            "no answer: queries/hang.png: decode_error, the decoder gave no answer in 2 s",
            without("3 decode_error"),
        ],
        statuses=GOOD
        | {f"queries/{name}.png": "decode_error" for name in ("crash", "exit", "hang")}
        | {"queries/last.png": "ok"},
    )  # fmt: skip


def residuals(path: str) -> tuple[float, ...]:
    row = next(row for row in read_rows(Path("out.csv")) if row["path"] == path)
    return tuple(float(value) for name, value in row.items() if name.startswith("residual:"))


def test_fault_17_many_frames(case: Case) -> None:
    """An animated GIF, a TIFF of many pages

    The first frame is classified.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    frames = [picture(k, 50) for k in (0, 1, 2)]
    frames[0].save(queries / "first.png")
    for name in ("many.gif", "many.tif"):
        frames[0].save(queries / name, save_all=True, append_images=frames[1:])
    case.run(
        *CLASSIFY, exit=0, err=[labelled(4, 4)],
        statuses=GOOD | {f"queries/{name}": "ok" for name in ("first.png", "many.gif", "many.tif")},
    )  # fmt: skip
    assert residuals("queries/many.tif") == residuals("queries/first.png")
    assert residuals("queries/many.gif") == pytest.approx(residuals("queries/first.png"), abs=1e-3)


def test_fault_18_colour_models(case: Case) -> None:
    """CMYK, palette, alpha

    A defined conversion, put on white: colour that hides under full transparency does not leak in.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    seen = picture(0, 50)
    seen.save(queries / "grey.png")
    for hidden in (0, 255):
        half = Image.new("L", seen.size, 255)
        half.paste(0, (0, 0, 4, 8))
        Image.merge("LA", (Image.composite(seen, Image.new("L", seen.size, hidden), half), half)).save(
            queries / f"alpha{hidden}.png"
        )
    seen.convert("RGB").convert("CMYK").save(queries / "cmyk.tif")
    seen.convert("P").save(queries / "palette.png")
    names = ("alpha0.png", "alpha255.png", "cmyk.tif", "grey.png", "palette.png")
    case.run(
        *CLASSIFY, exit=0, err=[labelled(6, 6)], statuses=GOOD | {f"queries/{name}": "ok" for name in names}
    )
    assert residuals("queries/alpha0.png") == residuals("queries/alpha255.png")
    assert residuals("queries/palette.png") == residuals("queries/grey.png")
    assert residuals("queries/cmyk.tif") == pytest.approx(residuals("queries/grey.png"), abs=0.02)


def test_fault_19_deep_pictures(case: Case) -> None:
    """A 16-bit or floating-point picture

    Scaled by its type, not clipped: it has the direction of its 8-bit form.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    values = np.asarray(picture(0, 50))
    Image.fromarray(values).save(queries / "08.png")
    Image.fromarray(values.astype(np.uint16) * 257).save(queries / "16.png")
    Image.fromarray(values.astype(np.float32) / 255).save(queries / "32.tif")
    names = ("08.png", "16.png", "32.tif")
    case.run(
        *CLASSIFY, exit=0, err=[labelled(4, 4)], statuses=GOOD | {f"queries/{name}": "ok" for name in names}
    )
    assert residuals("queries/16.png") == pytest.approx(residuals("queries/08.png"), abs=1e-6)
    assert residuals("queries/32.tif") == pytest.approx(residuals("queries/08.png"), abs=1e-6)


TURNS = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def test_fault_20_orientation(case: Case) -> None:
    """EXIF orientation

    Applied: the eight orientations of one picture give one vector.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    upright = picture(0, 50, (12, 8))
    for orientation, turn in TURNS.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        stored = upright.transpose(turn) if turn is not None else upright
        stored.save(queries / f"{orientation}.png", exif=exif)
    case.run(
        *CLASSIFY, exit=0, err=[labelled(9, 9)],
        statuses=GOOD | {f"queries/{orientation}.png": "ok" for orientation in TURNS},
    )  # fmt: skip
    assert len({residuals(f"queries/{orientation}.png") for orientation in TURNS}) == 1


def test_fault_21_mixed_sizes(case: Case) -> None:
    """Mixed sizes and shapes

    One size, chosen at build, stored in the gallery and applied to queries.
    """
    make_pictures(case.here / "gallery", ["ant"], size=(8, 8))
    make_pictures(case.here / "gallery", ["bee", "cow"], size=(40, 30))
    note = "note: pictures differ in size: all brought to 32x32; --size chooses another size"
    case.run(
        "build", "gallery", exit=0,
        err=[note, "gallery.h5: 3 classes, 12 samples, dimension 1024, crnr, dense"],
    )  # fmt: skip
    assert load_gallery(Path("gallery.h5")).recipe.size == (32, 32)
    queries = make_queries()
    picture(0, 5, (9, 33)).save(queries / "tall.png")
    case.run(*CLASSIFY, exit=0, err=[labelled(2, 2)], statuses=GOOD | {"queries/tall.png": "ok"})


def test_fault_22_other_dimension(case: Case) -> None:
    """Query features of another dimension, or pictures for a gallery of features

    An error before any work, with both numbers.
    """
    make_features(case.here / "gallery.npz", dimension=6)
    make_features(case.here / "queries.npz", dimension=5)
    case.build("gallery.npz")
    case.run(
        "classify", "queries.npz", "-o", "out.csv", exit=1,
        err=[
            "error: queries.npz: 5 features a sample, and the gallery was built from 6; "
            "use the same features for both"
        ],
    )  # fmt: skip
    make_queries()
    case.run(*CLASSIFY, exit=1, err=["error: the gallery was built from features, and these are pictures"])
    assert case.files() == {"gallery.npz", "queries.npz", "gallery.h5", "queries"}


def test_fault_23_types_of_features(case: Case) -> None:
    """Features as float16, integers or big-endian; complex or objects

    Converted; refused.
    """
    values = np.array([[1, 0], [3, 1], [0, 1], [1, 4]])
    labels = np.array(["a", "a", "b", "b"])
    np.savez("gallery.npz", features=values.astype(float), labels=labels)
    case.build("gallery.npz")
    answers = []
    for kind in ("f2", "i4", ">f4", ">i2", "u1"):
        np.savez("queries.npz", features=values.astype(kind))
        case.run(
            "classify", "queries.npz", "-o", "out.csv", exit=0, err=[labelled(4, 4)],
            statuses={f"queries.npz#{i}": "ok" for i in range(4)},
        )  # fmt: skip
        answers.append(Path("out.csv").read_bytes())
    assert set(answers) == {answers[0]}
    Path("out.csv").unlink()
    for kind, found in (("c8", "complex64"), ("O", "object")):
        np.savez("queries.npz", features=values.astype(kind))
        case.run(
            "classify", "queries.npz", "-o", "out.csv", exit=1,
            err=[
                "error: queries.npz: features must be a table of numbers, one row a sample; "
                f"found {found} of shape (4, 2)"
            ],
        )  # fmt: skip
    assert case.files() == {"gallery.npz", "queries.npz", "gallery.h5"}


def test_fault_24_numbers_that_are_none(case: Case) -> None:
    """NaN or infinity; norms that overflow (1e200) or vanish (1e-200)

    In a gallery an error with the rows; a query is `non_finite`. Values are scaled before the norm.
    """
    values = np.array([[1.0, 0], [3, 1], [0, 1], [1, 4]])
    labels = np.array(["a", "a", "b", "b"])
    bad = values.copy()
    bad[1, 0], bad[3, 1] = np.nan, np.inf
    np.savez("bad.npz", features=bad, labels=labels)
    case.run(
        "build", "bad.npz", exit=1,
        err=["error: 2 rows hold NaN or infinity: bad.npz#1, bad.npz#3; mend or remove them"],
    )  # fmt: skip
    assert case.files() == {"bad.npz"}
    np.savez("gallery.npz", features=values * 1e200, labels=labels)
    case.build("gallery.npz")
    bad[0] *= 1e-200
    case.run(
        "classify", "bad.npz", "-o", "out.csv", exit=3,
        err=[
            labelled(2, 4),
            "no answer: bad.npz#1: non_finite, holds NaN or infinity",
            "no answer: bad.npz#3: non_finite, holds NaN or infinity",
            without("2 non_finite"),
        ],
        statuses={"bad.npz#0": "ok", "bad.npz#1": "non_finite", "bad.npz#2": "ok", "bad.npz#3": "non_finite"},
    )  # fmt: skip
    assert [row["label"] for row in read_rows(Path("out.csv"))] == ["a", "", "b", ""]


def test_fault_25_labels(case: Case) -> None:
    """Labels as integers, text or bytes; of the wrong length; missing

    Mapped to text; an error with both counts.
    """
    values = np.array([[1.0, 0], [3, 1], [0, 1], [1, 4]])
    kinds = {"int": [7, 7, 10, 10], "float": [7.0, 7.0, 10.0, 10.0], "text": ["7", "7", "10", "10"]}
    for name, labels in kinds.items():
        np.savez(f"{name}.npz", features=values, labels=labels)
    np.savez("bytes.npz", features=values, labels=np.array([b"7", b"7", b"10", b"10"]))
    for name in (*kinds, "bytes"):
        case.run(
            "build", f"{name}.npz", "-o", f"{name}.h5", exit=0,
            err=[f"{name}.h5: 2 classes, 4 samples, dimension 2, crnr, dense"],
        )  # fmt: skip
        assert load_gallery(Path(f"{name}.h5")).classes == ["10", "7"]
    np.savez("short.npz", features=values, labels=["7", "10", "10"])
    case.run("build", "short.npz", exit=1, err=["error: short.npz: 4 rows of features but 3 labels"])
    np.savez("none.npz", features=values)
    case.run(
        "build", "none.npz", exit=1, err=["error: none.npz: no labels; name their dataset with --labels-key"]
    )
    assert "gallery.h5" not in case.files()


def test_fault_26_other_dataset_names(case: Case) -> None:
    """HDF5 with other dataset names

    The error lists the datasets found, their shapes, and the option that names one.
    """
    with h5py.File("data.h5", "w") as file:
        file["deep/vectors"] = np.eye(3)
        file["y"] = [1, 2, 3]
    case.run(
        "build", "data.h5", exit=1,
        err=[
            "error: data.h5: no dataset features; found deep/vectors (3, 3), y (3,); "
            "name one with --features-key"
        ],
    )  # fmt: skip
    assert case.files() == {"data.h5"}
    case.run(
        "build", "data.h5", "--features-key", "deep/vectors", "--labels-key", "y", exit=0,
        err=["gallery.h5: 3 classes, 3 samples, dimension 3, crnr, dense"],
    )  # fmt: skip


def test_fault_27_damaged_gallery(case: Case) -> None:
    """A gallery that is cut short or has altered bytes

    Refused: HDF5 reads a flipped byte without an error, so the stored SHA-256 is compared.
    """
    make_pictures(case.here / "gallery")
    make_queries()
    case.build()
    whole = Path("gallery.h5").read_bytes()
    vectors = load_gallery(Path("gallery.h5")).samples.vectors
    at = whole.index(vectors[0].tobytes())
    Path("gallery.h5").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    case.run(
        *CLASSIFY, exit=1,
        err=["error: gallery.h5: damaged (its checksum does not match); restore it or build it again"],
    )  # fmt: skip
    Path("gallery.h5").write_bytes(whole[: len(whole) // 2])
    outcome = case(*CLASSIFY)
    tidy = re.sub(r"\(.*\)", "(...)", outcome.err)  # HDF5's words
    case.check(
        Outcome(outcome.exit, outcome.out, tidy), "crnr classify queries -o out.csv", exit=1,
        err=["error: gallery.h5: not a readable gallery (...); restore it or build it again"],
    )  # fmt: skip
    assert case.files() == {"gallery", "gallery.h5", "queries"}
    assert Path("gallery.h5").read_bytes() == whole[: len(whole) // 2]


def test_fault_28_other_versions(case: Case) -> None:
    """A gallery of a newer version; not a gallery at all

    Refused by name. Older ones open for ever.
    """
    make_queries()
    make_pictures(case.here / "gallery")
    case.build()
    with h5py.File("gallery.h5", "r+") as file:
        file.attrs["version"] = 99
    case.run(
        *CLASSIFY, exit=1,
        err=[
            "error: gallery.h5: gallery format 99, and this crnr (0.1.0) reads up to 1; please upgrade crnr"
        ],
    )  # fmt: skip
    with h5py.File("other.h5", "w") as file:
        file["features"] = np.eye(2)
    case.run(*CLASSIFY, "-g", "other.h5", exit=1, err=["error: other.h5: not a crnr gallery"])
    case.run(
        *CLASSIFY, "-g", "none.h5", exit=1,
        err=["error: none.h5: no such gallery; make it with `crnr build FOLDER -o none.h5`"],
    )  # fmt: skip
    assert case.files() == {"queries", "gallery", "gallery.h5", "other.h5"}


def test_fault_29_hostile_hdf5(case: Case) -> None:
    """Hostile HDF5: links to other files, virtual datasets, huge shapes, filters, deep groups

    Refused before anything is allocated or followed, in galleries and in features alike.
    """
    with h5py.File("secret.h5", "w") as file:
        file["features"] = np.eye(4)
    labels = np.arange(4)

    def refuse(name: str, words: str) -> None:
        case.run("build", name, "-o", "gallery.h5", exit=1, err=[f"error: {name}: {words}"])

    with h5py.File("external.h5", "w") as file:
        file["features"] = h5py.ExternalLink("secret.h5", "features")
        file["labels"] = labels
    refuse("external.h5", "dataset features is a link to elsewhere; copy the data into the file")
    with h5py.File("soft.h5", "w") as file:
        file["features"] = h5py.SoftLink("/labels")
        file["labels"] = labels
    refuse("soft.h5", "dataset features is a link to elsewhere; copy the data into the file")
    with h5py.File("virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((4, 4), float)
        layout[:] = h5py.VirtualSource("secret.h5", "features", (4, 4))
        file.create_virtual_dataset("features", layout)
        file["labels"] = labels
    refuse("virtual.h5", "dataset features points into other files; copy the data into one file")
    with h5py.File("raw.h5", "w") as file:
        file.create_dataset("features", (4, 4), float, external=[("/etc/passwd", 0, 128)])
        file["labels"] = labels
    refuse("raw.h5", "dataset features points into other files; copy the data into one file")
    with h5py.File("huge.h5", "w") as file:
        file.create_dataset("features", (10**12, 10**3), float, chunks=(1, 10**3), compression="gzip")
        file["labels"] = labels
    refuse("huge.h5", "dataset features declares 8000000000000000 bytes and holds 0; write it again in full")
    with h5py.File("filter.h5", "w") as file:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((4, 4))
        plan.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((4, 4))
        h5py.h5d.create(file.id, b"features", h5py.h5t.NATIVE_DOUBLE, space, plan)
        file["labels"] = labels
    refuse(
        "filter.h5",
        "dataset features is compressed in a way that is not known here; store it with gzip or plain",
    )
    with h5py.File("deep.h5", "w") as file:
        file["/".join("abcdefghijkl") + "/features"] = np.eye(4)
    refuse("deep.h5", "not a readable HDF5 file (groups deeper than 8)")
    with h5py.File("reference.h5", "w") as file:
        file.create_dataset("features", (4, 4), h5py.ref_dtype)
        file["labels"] = labels
    refuse("reference.h5", "dataset features is of type object, and not of numbers or text")
    assert "gallery.h5" not in case.files()

    make_pictures(case.here / "gallery")
    make_queries()
    case.build()
    whole = Path("gallery.h5").read_bytes()

    def refuse_gallery(words: str) -> None:
        case.run(*CLASSIFY, exit=1, err=[f"error: gallery.h5: {words}; build it again"])
        Path("gallery.h5").write_bytes(whole)

    with h5py.File("gallery.h5", "r+") as file:
        file["state/extra"] = h5py.ExternalLink("secret.h5", "features")
    refuse_gallery("state/extra is a link to elsewhere")
    with h5py.File("gallery.h5", "r+") as file:
        file.create_dataset("state/extra", (10**12,), float, chunks=(1000,))
    refuse_gallery("state/extra is not stored plainly")
    with h5py.File("gallery.h5", "r+") as file:
        file["a/b/c/d"] = 1
    refuse_gallery("a/b/c has no place in a gallery")
    assert "out.csv" not in case.files()


def test_fault_30_unreadable_and_vanished(case: Case) -> None:
    """An unreadable file or folder; one that vanished between listing and reading

    `unreadable` and `vanished`.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    picture(0, 1).save(queries / "closed.png")
    (queries / "closed").mkdir()
    (queries / "closed.png").chmod(0)
    (queries / "closed").chmod(0)
    Path("list").write_text("queries/good.png\nqueries/gone.png\n")
    out = case.here / "out"
    out.mkdir()
    out.chmod(0o777)
    nobody = without_root()
    try:
        case.run(
            "classify", "queries", "-o", "-", "-q", exit=3, out=None, **nobody,
            statuses=GOOD | {"queries/closed": "unreadable", "queries/closed.png": "unreadable"},
        )  # fmt: skip
    finally:
        (queries / "closed").chmod(0o700)
    case.run(
        "classify", "-", "-o", "out.csv", exit=3, stdin=Path("list").read_bytes(),
        err=[
            labelled(1, 2), "no answer: queries/gone.png: vanished, no such file", without("1 vanished")
        ],
        statuses=GOOD | {"queries/gone.png": "vanished"}, shown="crnr classify - -o out.csv < list",
    )  # fmt: skip


def test_fault_31_links_and_devices(case: Case) -> None:
    """A loop of links, a dangling link, a FIFO, a socket or a device in the tree

    Links are followed once; what is not a regular file is never opened: `not_regular`.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    (queries / "up").symlink_to("..")
    (queries / "self").symlink_to("self")
    (queries / "dangling.png").symlink_to("nowhere.png")
    os.mkfifo(queries / "fifo.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("queries/socket.png")
    (queries / "null.png").symlink_to("/dev/null")
    inner = queries / "inner"
    inner.mkdir()
    (inner / "back").symlink_to("../../queries")
    (queries / "up").unlink()
    case.run(
        *CLASSIFY, exit=3,
        err=[
            labelled(1, 6),
            "no answer: queries/dangling.png: vanished, no such file",
            "no answer: queries/fifo.png: not_regular, not a regular file",
            "no answer: queries/null.png: not_regular, not a regular file",
            "no answer: queries/self: unreadable, Too many levels of symbolic links",
            "no answer: queries/socket.png: not_regular, not a regular file",
            without("3 not_regular", "1 vanished", "1 unreadable"),
        ],
        statuses=GOOD
        | {
            "queries/dangling.png": "vanished",
            "queries/fifo.png": "not_regular",
            "queries/null.png": "not_regular",
            "queries/self": "unreadable",
            "queries/socket.png": "not_regular",
        },
    )  # fmt: skip


def test_fault_32_the_same_file_twice(case: Case) -> None:
    """The same file named twice

    Two rows, in the order given.
    """
    make_pictures(case.here / "gallery")
    case.build()
    queries = make_queries()
    picture(1, 5).save(queries / "bee.png")
    names = ["queries/good.png", "queries/bee.png", "queries/good.png"]
    case.run("classify", *names, "-o", "out.csv", exit=0, err=[labelled(3, 3)])
    assert [row["path"] for row in read_rows(Path("out.csv"))] == names


def limited(size: int) -> dict[str, object]:
    """Options of a process whose files may not grow beyond `size`, as with a quota."""
    return {
        "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        # To measure coverage there would need files too.
        "env": {name: value for name, value in os.environ.items() if not name.startswith("COV")},
    }


def test_fault_33_full_disk(case: Case) -> None:
    """A full disk, a quota

    The temporary file is removed, the old output intact, exit 1; a classify in progress can be resumed.
    """
    make_features(case.here / "gallery.npz", per_class=50, dimension=64)
    case.build("gallery.npz")
    whole = Path("gallery.h5").read_bytes()
    case.run(
        "build", "gallery.npz", exit=1, **limited(20_000),
        err=["error: gallery.h5: cannot write (File too large); the old file, if any, is intact"],
    )  # fmt: skip
    assert Path("gallery.h5").read_bytes() == whole
    assert case.files() == {"gallery.npz", "gallery.h5"}
    Path("out.csv").write_text("old")
    case.run(
        "classify", "gallery.npz", "-o", "out.csv", exit=1, **limited(4_000),
        err=[
            "error: out.csv: cannot write (File too large); "
            "what is done is kept: --resume goes on from there"
        ],
    )  # fmt: skip
    assert Path("out.csv").read_text() == "old"
    assert case.files() == {"gallery.npz", "gallery.h5", "out.csv", "out.csv.part", "out.csv.part.journal"}
    case.run(
        "classify", "gallery.npz", "-o", "out.csv", "--resume", exit=0,
        err=["note: 0 of 150 inputs were answered before", labelled(150, 150)],
    )  # fmt: skip
    assert case.files() == {"gallery.npz", "gallery.h5", "out.csv"}


def test_fault_34_output_in_a_bad_place(case: Case) -> None:
    """Output is a directory, in a missing directory, read-only, inside the queries, or an input

    Found before anything is decoded.
    """
    make_pictures(case.here / "gallery")
    make_queries()
    case.build()
    Path("folder").mkdir()
    for output, words in {
        "folder": "is a directory; name a file",
        "missing/out.csv": "there is no directory missing; make it first",
        "queries/out.csv": "lies inside the queries queries; write it somewhere else",
        "gallery.h5": "is an input of this run; write to another file",
    }.items():
        case.run("classify", "queries", "-o", output, exit=1, err=[f"error: {output}: {words}"])
    case.run("build", "gallery", "-o", "folder", exit=1, err=["error: folder: is a directory; name a file"])
    Path("folder").chmod(0o555)
    case.run(
        "classify", "queries", "-o", "folder/out.csv", exit=1, **without_root(),
        err=["error: folder/out.csv: no permission to write here"],
    )  # fmt: skip
    assert case.files() == {"gallery", "queries", "gallery.h5", "folder"}
    assert os.listdir("folder") == []  # noqa: PTH208
    assert os.listdir("queries") == ["good.png"]  # noqa: PTH208


# crnr with batches of one, which says on stderr when it has begun the third, and waits there.
PAUSING = """
import sys, time
from crnr_cli.jobs import classify as job
job.batch_size = lambda n_samples: 1
answer = job.answer
def pausing(*args, **kwargs):
    for number, answers in enumerate(answer(*args, **kwargs)):
        if number == 2:
            print("begun", file=sys.stderr, flush=True)
            time.sleep({seconds})
        yield answers
job.answer = pausing
from crnr_cli.cli import main
main()
"""


def start_pausing(case: Case, seconds: float, *args: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", PAUSING.format(seconds=seconds), *args],
        cwd=case.here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == b"begun\n"
    return process


def ended(process: subprocess.Popen[bytes]) -> Outcome:
    out, err = process.communicate(timeout=60)
    return Outcome(process.returncode, out.decode(), err.decode())


RESUME = ("classify", "gallery.npz", "-o", "out.csv", "--resume")


def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classify_job, "batch_size", lambda n_samples: 1)


def test_fault_35_interrupted(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGINT or SIGTERM in the middle

    The current batch is finished if it can be in 2 s; exit 130 or 143; `--resume` goes on from there.
    """
    small_batches(monkeypatch)
    make_features(case.here / "gallery.npz")
    case.build("gallery.npz")
    case("classify", "gallery.npz", "-o", "clean.csv")
    for number, words in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")):
        process = start_pausing(case, 0.2, "classify", "gallery.npz", "-o", "out.csv")
        process.send_signal(number)
        case.check(
            ended(process), "crnr classify gallery.npz -o out.csv", exit=128 + number,
            err=[f"{words}; the same command with --resume goes on from there"],
        )  # fmt: skip
        assert case.files() == {
            "gallery.npz", "gallery.h5", "clean.csv", "out.csv.part", "out.csv.part.journal"
        }  # fmt: skip
        case.run(*RESUME, exit=0, err=["note: 3 of 15 inputs were answered before", labelled(15, 15)])
        assert Path("out.csv").read_bytes() == Path("clean.csv").read_bytes()
        Path("out.csv").unlink()


def test_fault_36_killed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL or a power loss

    The old file is whole or the new one is; `classify --resume` gives the bytes of a run in one go.
    """
    small_batches(monkeypatch)
    make_features(case.here / "gallery.npz")
    case.build("gallery.npz")
    case("classify", "gallery.npz", "-o", "clean.csv")
    Path("out.csv").write_text("old")
    process = start_pausing(case, 60, "classify", "gallery.npz", "-o", "out.csv")
    process.kill()
    case.check(ended(process), "crnr classify gallery.npz -o out.csv", exit=-signal.SIGKILL)
    assert Path("out.csv").read_text() == "old"
    with Path("out.csv.part").open("ab") as part:
        part.write(b"gallery.npz#2,ant,a")  # a torn line, as a power loss leaves it
    case.run(*RESUME, exit=0, err=["note: 2 of 15 inputs were answered before", labelled(15, 15)])
    assert Path("out.csv").read_bytes() == Path("clean.csv").read_bytes()
    assert case.files() == {"gallery.npz", "gallery.h5", "clean.csv", "out.csv"}


def test_fault_37_two_at_once(case: Case) -> None:
    """Two runs, one output

    The second refuses, and says why.
    """
    make_features(case.here / "gallery.npz")
    case.build("gallery.npz")
    Path("out.csv").write_text("old")
    process = start_pausing(case, 60, "classify", "gallery.npz", "-o", "out.csv")
    busy = "error: out.csv: another crnr is writing it; wait for it or name another file"
    case.run("classify", "gallery.npz", "-o", "out.csv", exit=1, err=[busy])
    case.run("build", "gallery.npz", "-o", "out.csv", exit=1, err=[busy])
    assert Path("out.csv").read_text() == "old"
    assert len(Path("out.csv.part").read_bytes().splitlines()) == 3  # of the first run, untouched
    process.kill()
    ended(process)
    case.run("classify", "gallery.npz", "-o", "out.csv", exit=0, err=[labelled(15, 15)])
    assert case.files() == {"gallery.npz", "gallery.h5", "out.csv"}


def test_fault_38_stdout_that_takes_nothing(case: Case) -> None:
    """`| head`; stdout on `/dev/full`, or closed

    Exit 141, silent; exit 1 with a message.
    """
    make_features(
        case.here / "gallery.npz", per_class=100, dimension=12, classes=[f"class {i}" for i in range(12)]
    )
    case.build("gallery.npz")
    process = case.start("classify", "gallery.npz")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"path,truth,")
    process.stdout.close()
    err = process.stderr.read().decode() if process.stderr else ""
    case.check(Outcome(process.wait(60), "", err), "crnr classify gallery.npz | head -1", exit=141)
    if process.stderr:
        process.stderr.close()
    for args in (["classify", "gallery.npz"], ["evaluate", "gallery.npz"], ["info", "--json"]):
        with Path("/dev/full").open("wb") as full:
            case.run(
                *args, exit=1, stdout=full, shown=f"crnr {' '.join(args)} > /dev/full",
                err=["error: cannot write to stdout (No space left on device)"],
            )  # fmt: skip
    case.run(
        "classify", "gallery.npz", exit=1, stdout=None, preexec_fn=lambda: os.close(1),
        shown="crnr classify gallery.npz >&-",
        err=["error: cannot write to stdout (Bad file descriptor)"],
    )  # fmt: skip
    assert case.files() == {"gallery.npz", "gallery.h5"}


def test_fault_39_nothing_to_do(case: Case) -> None:
    """No queries; no classes; an empty class folder

    An error "nothing to do"; a class with nothing in it is named and left out.
    """
    Path("empty").mkdir()
    nothing = "error: nothing to do in empty: no files found there"
    case.run("build", "empty", exit=1, err=[nothing])
    flat = make_queries("flat")
    case.run(
        "build", "flat", exit=1,
        err=[f"error: nothing to do: no sample can be used; {flat}/good.png: not in a class folder"],
    )  # fmt: skip
    make_pictures(case.here / "gallery")
    Path("gallery/dog").mkdir()
    case.run(
        "build", "gallery", exit=0,
        err=[
            "note: class dog: nothing in it, left out",
            "gallery.h5: 3 classes, 12 samples, dimension 64, crnr, dense",
        ],
    )  # fmt: skip
    case.run("classify", "empty", "-o", "out.csv", exit=1, err=[nothing])
    case.run("classify", "-", exit=1, err=["error: nothing to do in -: no files found there"])
    case.run("classify", "gone", exit=1, err=["error: gone: no such file or folder"])
    assert case.files() == {"empty", "flat", "gallery", "gallery.h5"}


def test_fault_40_another_resume(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resume with another gallery, other options or another list of inputs

    Refused, with what differs; the unfinished run is kept.
    """
    small_batches(monkeypatch)
    make_features(case.here / "gallery.npz")
    case.build("gallery.npz")
    process = start_pausing(case, 60, "classify", "gallery.npz", "-o", "out.csv")
    process.kill()
    ended(process)
    left = {path.name: path.read_bytes() for path in case.here.glob("out*")}
    refused = "error: out.csv: the unfinished run was another one: "
    remedy = "; give it the same again, or leave out --resume to start anew"
    case.run(
        *RESUME, "--max-pixels", "5", exit=1, err=[f"{refused}--max-pixels was 89478485 and is 5{remedy}"]
    )
    case.build("gallery.npz", "--lam", "0.5", "-o", "other.h5")
    case.run(*RESUME, "-g", "other.h5", exit=1, err=[f"{refused}gallery differs{remedy}"])
    case.run(
        *RESUME, "gallery.npz", exit=1,
        err=[f"{refused}number of inputs was 15 and is 30, list of inputs differs{remedy}"],
    )  # fmt: skip
    assert {path.name: path.read_bytes() for path in case.here.glob("out*")} == left


def test_fault_41_too_large_for_memory(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gallery too large for memory

    Estimated from the shapes before anything is read, and refused with both figures and what to do. (Here a
    machine with very little memory free.)
    """
    make_pictures(case.here / "gallery")
    for free, words in (
        (1000, "reading 12 samples of 64 numbers needs 3.1 kB, 1.0 kB free; use a smaller --size or --pca"),
        (5000, "fitting crnr to 12 samples of dimension 64 needs 19.4 kB, 5.0 kB free; use --pca or fewer "
         "samples"),
    ):  # fmt: skip
        monkeypatch.setattr(memory, "free_bytes", lambda free=free: free)
        case.run("build", "gallery", exit=1, err=[f"error: {words}"])
        assert not Path("gallery.h5").exists()
    monkeypatch.setattr(memory, "free_bytes", lambda: None)  # unknown: the work is tried
    case.build("gallery")
    monkeypatch.setattr(memory, "free_bytes", lambda: 100)
    needed = f"{Path('gallery.h5').stat().st_size / 1000:.1f} kB"
    case.run(
        "classify", "gallery/ant", exit=1,
        err=[
            f"error: gallery.h5: the gallery needs {needed}, 100.0 bytes free; "
            "classify on a larger machine, or build it with --pca"
        ],
    )  # fmt: skip


def test_fault_42_ties(case: Case) -> None:
    """Ties

    The first class by name, margin 0.
    """
    values = np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    np.savez("gallery.npz", features=values, labels=["b", "a", "c"])
    case.build("gallery.npz")
    np.savez("queries.npz", features=values[:1])
    case.run(
        "classify", "queries.npz", "-o", "out.csv", exit=0, err=[labelled(1, 1)],
        statuses={"queries.npz#0": "ok"},
    )  # fmt: skip
    (row,) = read_rows(Path("out.csv"))
    assert (row["label"], row["runner_up"], float(row["margin"])) == ("a", "b", 0.0)
    assert row["residual:a"] == row["residual:b"]


def test_fault_43_read_only_inputs(case: Case) -> None:
    """A read-only tree of inputs

    Works: nothing is ever written beside the inputs.
    """
    make_pictures(case.here / "inputs" / "gallery")
    before = snapshot(Path("inputs"))
    folders = [Path("inputs"), *(path for path in Path("inputs").rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    Path("work").mkdir()
    Path("work").chmod(0o777)
    nobody = without_root()
    case.run("build", "../inputs/gallery", "-q", exit=0, cwd=case.here / "work", **nobody)
    case.run(
        "classify", "../inputs/gallery", "-o", "out.csv", exit=0, cwd=case.here / "work", **nobody,
        err=[labelled(12, 12)],
    )  # fmt: skip
    for folder in folders:
        folder.chmod(0o755)
    assert snapshot(Path("inputs")) == before
    assert {path.name for path in Path("work").iterdir()} == {"gallery.h5", "out.csv"}


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


# Python runs this at the start of every process of ours, decoders too: it notes all that touches a network.
WATCH = """
import sys
import zlib
def note(event, args):
    if event.startswith("socket.") or event in ("urllib.Request", "http.client.connect"):
        with open({log!r}, "a") as log:
            log.write(event + "\\n")
sys.addaudithook(note)
"""


def test_fault_44_no_network(case: Case) -> None:
    """No network

    Nothing is ever fetched or sent.
    """
    make_pictures(case.here / "gallery")
    Path("watch").mkdir()
    Path("watch/sitecustomize.py").write_text(WATCH.format(log=str(case.here / "log")))
    watched = os.environ | {"PYTHONPATH": str(case.here / "watch")}
    seen = subprocess.run([sys.executable, "-c", "import socket; socket.socket()"], env=watched, check=True)
    assert seen.returncode == 0
    assert Path("log").read_text() == "socket.__new__\n"  # the watch does see
    Path("log").unlink()
    case.run("build", "gallery", "-q", exit=0, env=watched)
    case.run("classify", "gallery", "-o", "out.csv", exit=0, env=watched, err=[labelled(12, 12)])
    case.run("evaluate", "out.csv", "--json", exit=0, env=watched, out=None)
    assert case.files() == {"gallery", "watch", "gallery.h5", "out.csv"}


GO_ON = (
    "what is done is kept: --resume goes on from there, without --strict or with a higher --max-failure-rate"
)


def test_strict_stops_at_the_first_failure(crnr: Runner) -> None:
    make_pictures(crnr.here / "gallery")
    queries = make_queries()
    (queries / "empty.png").write_bytes(b"")
    (queries / "README").write_text("not meant to be a picture")
    crnr("build", "gallery", "-q")
    outcome = crnr(*CLASSIFY, "--strict")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        "error: queries/empty.png: empty_file; stopped, as 1 of 3 inputs are without an answer "
        f"and at most 0.00% may be; {GO_ON}\n"
    )
    assert crnr.files() == {"gallery", "queries", "gallery.h5", "out.csv.part", "out.csv.part.journal"}
    assert crnr("classify", "queries", "--strict").err == (
        "error: queries/empty.png: empty_file; stopped, as 1 of 3 inputs are without an answer "
        "and at most 0.00% may be\n"
    )
    assert crnr(*CLASSIFY, "--max-failure-rate", "0.2").exit == 1
    assert crnr(*CLASSIFY, "--max-failure-rate", "0.4", "--resume").exit == 3
    assert crnr.files() == {"gallery", "queries", "gallery.h5", "out.csv"}


def test_a_strict_run_that_is_resumed_stops_again_unless_more_may_fail(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crnr_cli.jobs.classify.batch_size", lambda n_samples: 1)
    make_pictures(crnr.here / "gallery")
    (make_queries() / "0.png").write_bytes(b"")
    crnr("build", "gallery", "-q")
    assert crnr(*CLASSIFY, "--strict").exit == 1
    outcome = crnr(*CLASSIFY, "--strict", "--resume")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        f"error: stopped, as 1 of 2 inputs are without an answer and at most 0.00% may be; {GO_ON}\n"
    )
    outcome = crnr(*CLASSIFY, "--resume")
    assert outcome.exit == 3
    assert outcome.err.startswith("note: 1 of 2 inputs were answered before\n")
    assert [row["status"] for row in read_rows(Path("out.csv"))] == ["empty_file", "ok"]


def test_strict_build_stops_too(crnr: Runner) -> None:
    make_pictures(crnr.here / "gallery")
    (crnr.here / "gallery" / "ant" / "empty.png").write_bytes(b"")
    outcome = crnr("build", "gallery", "--strict")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        "error: gallery/ant/empty.png: the file is empty; stopped, as 1 of 13 samples have to be left out "
        "and at most 0.00% may be\n"
    )
    assert crnr.files() == {"gallery"}
    assert crnr("build", "gallery", "--allow-skipped").exit == 0


def test_disk_errors_have_names() -> None:
    """The errors that a user can mend are those that the kernel gives for a full or failing disk."""
    from crnr_cli.system.files import _DISK_ERRORS

    assert {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG} <= _DISK_ERRORS
