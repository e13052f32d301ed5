"""Folders made on one system and used on another: no class and no file may be lost or mixed there."""

from __future__ import annotations

import csv
import os
import unicodedata
from contextlib import chdir
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.errors import DataError, OutputError
from crnr_cli.jobs import sort as sort_module
from crnr_cli.jobs import split as split_module
from crnr_cli.jobs.sort import SortOptions, sort, unsort
from crnr_cli.sorting.plan import HOWS
from helpers.runner import Runner
from helpers.samples import draw_image, make_images

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
labels = st.text(st.sampled_from("aAbé\u0301e:?. \\%con1"), min_size=1, max_size=5)
own_names = st.text(st.sampled_from("aAé\u0301e:? .con"), min_size=1, max_size=5).filter(
    lambda name: name not in (".", "..")
)


def write_csv(path: Path, rows: list[tuple[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["path", "truth", "label", "status"])
        writer.writerows([name, "", label, "ok"] for name, label in rows)


def as_seen(path: str) -> str:
    """Return the path as a file system sees it that folds names."""
    return unicodedata.normalize("NFC", path).upper()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".crnr-")
    }


@pytest.mark.slow
@given(st.lists(st.tuples(own_names, labels), min_size=1, max_size=8), st.booleans())
def test_sorted_files_are_the_same_on_every_system(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], only_folded: bool
) -> None:
    """Every file is there under a name of its own, in a folder that has no other class; or it is refused."""
    here = tmp_path_factory.mktemp("systems")
    with chdir(here), pytest.MonkeyPatch.context() as patch:
        for number, (name, _) in enumerate(rows):
            Path(f"q{number}").mkdir()
            Path(f"q{number}", name).write_text(str(number), encoding="ascii")
        write_csv(Path("out.csv"), [(f"q{i}/{name}", label) for i, (name, label) in enumerate(rows)])
        if only_folded:
            patch.setattr(sort_module, "folds_names", lambda folder: True)
        options = SortOptions(portable_names=not only_folded)
        classes = {label for _, label in rows}
        if len(set(map(as_seen, classes))) < len(classes):
            with pytest.raises(OutputError, match="differ only in case or Unicode form"):
                sort(Path("out.csv"), Path("sorted"), options)
            assert not Path("sorted").exists()
            return
        sort(Path("out.csv"), Path("sorted"), options)
        found = contents(Path("sorted"))
        assert sorted(found.values()) == sorted(str(i).encode() for i in range(len(rows)))
        assert len(set(map(as_seen, found))) == len(rows)
        by_folder: dict[str, set[str]] = {}
        for place, data in found.items():
            folder = as_seen(place.rpartition("/")[0])
            by_folder.setdefault(folder, set()).add(rows[int(data)][1])
            assert unquote(place.rpartition("/")[0]) == rows[int(data)][1]
        assert all(len(of_folder) == 1 for of_folder in by_folder.values())
        again = sort(Path("out.csv"), Path("sorted"), options)
        assert again.count("there") == len(rows)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("q").mkdir()
    for i in range(4):
        draw_image(0, i).save(f"q/{i}.png")
    return tmp_path


def test_a_folder_of_another_case_is_not_filled(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that an earlier run made, nor one that was there before."""
    monkeypatch.setattr(sort_module, "folds_names", lambda folder: True)
    write_csv(Path("one.csv"), [("q/0.png", "Rose")])
    write_csv(Path("other.csv"), [("q/1.png", "rose")])
    sort(Path("one.csv"), Path("sorted"), SortOptions())
    with pytest.raises(OutputError, match="the folders 'Rose' and 'rose' differ only in case"):
        sort(Path("other.csv"), Path("sorted"), SortOptions())
    assert sort(Path("one.csv"), Path("sorted"), SortOptions()).count("there") == 1
    Path("mine", "ROSE").mkdir(parents=True)
    with pytest.raises(OutputError, match="the folders 'ROSE' and 'rose' differ only in case"):
        sort(Path("other.csv"), Path("mine"), SortOptions())
    assert list(Path("mine").iterdir()) == [Path("mine/ROSE")]


def test_sort_on_linux_keeps_names_apart_that_differ_in_case(images: Path) -> None:
    write_csv(Path("out.csv"), [("q/0.png", "Rose"), ("q/1.png", "rose"), ("q/2.png", "a:b")])
    sort(Path("out.csv"), Path("sorted"), SortOptions())
    assert {path.name for path in Path("sorted").glob("[!.]*")} == {"Rose", "rose", "a:b"}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(("unit", "name"), [(100, "NTFS"), (10**7, "exFAT"), (2 * 10**9, "FAT")])
def test_coarser_times_are_no_change(images: Path, how: str, unit: int, name: str) -> None:
    """The copy has the time that the file system could store, and is removed by --undo."""
    write_csv(Path("out.csv"), [("q/0.png", "rose")])
    sort(Path("out.csv"), Path("sorted"), SortOptions(how=how))
    target = Path("sorted/rose/0.png")
    if how == "copy":
        time = target.stat().st_mtime_ns // unit * unit
        os.utime(target, ns=(time, time))
    assert unsort(Path("sorted/.crnr-sort-1.jsonl")).undone == 1
    assert not target.exists()


def test_a_changed_copy_is_still_recognised(images: Path) -> None:
    """The new time is none that a coarser file system would store."""
    os.utime("q/0.png", ns=(1_234_567_891_234_567_891,) * 2)
    write_csv(Path("out.csv"), [("q/0.png", "rose")])
    sort(Path("out.csv"), Path("sorted"), SortOptions())
    target = Path("sorted/rose/0.png")
    time = target.stat().st_mtime_ns + 1
    os.utime(target, ns=(time, time))
    assert unsort(Path("sorted/.crnr-sort-1.jsonl")).left_out[0][1] == "has changed since it was sorted"


def test_sort_finds_files_that_are_listed_in_another_form(images: Path) -> None:
    Path("q", DECOMPOSED).mkdir()
    Path("q/0.png").rename(Path("q", DECOMPOSED, f"{DECOMPOSED}.png"))
    write_csv(Path("out.csv"), [(f"q/{COMPOSED}/{COMPOSED}.png", "rose")])
    report = sort(Path("out.csv"), Path("sorted"), SortOptions(how="move"))
    assert report.count("move") == 1
    assert not list(Path("q", DECOMPOSED).iterdir())


def test_another_form_of_a_folder_leads_nowhere_else(images: Path) -> None:
    """A link that is found only in another Unicode form is followed no further than any other."""
    outside = images.parent / f"{images.name} outside"
    outside.mkdir()
    (outside / "0.png").write_bytes(b"secret")
    Path(DECOMPOSED).symlink_to(outside)
    write_csv(Path("out.csv"), [(f"{COMPOSED}/0.png", "rose")])
    with pytest.raises(DataError, match="is neither below the current folder"):
        sort(Path("out.csv"), Path("sorted"), SortOptions())


class TestSplit:
    @pytest.fixture
    def here(self, crnr: Runner) -> Runner:
        for label in ("Rose", "rose"):
            for i in range(4):
                (crnr.here / "photos" / label).mkdir(parents=True, exist_ok=True)
                draw_image(len(label), i).save(crnr.here / "photos" / label / f"{i}.png")
        return crnr

    ARGUMENTS = ("split", "photos", "--train", "g", "--test", "q")

    def test_classes_that_would_be_one_are_refused(
        self, here: Runner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        error = (
            "error: classes 'Rose' and 'rose' differ only in case or Unicode form, and would be one folder "
            "on this or another system; rename one\n"
        )
        assert here(*self.ARGUMENTS, "--portable-names").err == error
        monkeypatch.setattr(split_module, "folds_names", lambda folder: True)
        assert here(*self.ARGUMENTS).err == error
        monkeypatch.setattr(split_module, "folds_names", lambda folder: False)
        assert here(*self.ARGUMENTS).exit == 0

    def test_files_and_folders_get_names_that_can_be(self, here: Runner) -> None:
        (here.here / "photos" / "rose").rename(here.here / "photos" / "a:b")
        (here.here / "photos" / "Rose" / "0.png").rename(here.here / "photos" / "Rose" / "con.PNG")
        (here.here / "photos" / "Rose" / "1.png").rename(here.here / "photos" / "Rose" / "A.png")
        (here.here / "photos" / "Rose" / "2.png").rename(here.here / "photos" / "Rose" / "a.png")
        assert here(*self.ARGUMENTS, "--portable-names").exit == 0
        found = {*contents(here.here / "g"), *contents(here.here / "q")}
        assert found == {
            *(f"a%3Ab/{i}.png" for i in range(4)),
            *(f"Rose/{name}" for name in ("%63on.PNG", "A.png", "a (2).png", "3.png")),
        }
        again = here(*self.ARGUMENTS, "--portable-names")
        assert "0 files copied, 8 are already there" in again.err

    def test_split_ignores_files_of_operating_systems(self, here: Runner) -> None:
        assert here(*self.ARGUMENTS).exit == 0
        for name in ("Thumbs.db", "desktop.ini", ".DS_Store", "Icon\r", "._0.png"):
            (here.here / "g" / "Rose" / name).touch()
        assert "0 files copied, 8 are already there" in here(*self.ARGUMENTS).err


class TestEitherForm:
    """é can be one character or two; both are the same file and the same class."""

    @pytest.fixture(params=[(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)], ids=["typed", "listed"])
    def forms(self, crnr: Runner, request: pytest.FixtureRequest) -> tuple[str, str]:
        stored, given_name = request.param
        make_images(crnr.here / "gallery")
        (crnr.here / "gallery" / "ant").rename(crnr.here / "gallery" / stored)
        first = min((crnr.here / "gallery" / stored).iterdir())
        first.rename(first.with_name(f"{stored}.png"))
        assert crnr("build", "gallery", "-q").exit == 0
        return stored, given_name

    def test_classify_finds_sources_in_any_unicode_form(self, crnr: Runner, forms: tuple[str, str]) -> None:
        stored, given_name = forms
        for source in (f"gallery/{given_name}", f"gallery/{given_name}/{given_name}.png"):
            outcome = crnr("classify", source)
            assert (outcome.exit, outcome.err.count("labelled")) == (0, 1)
            assert f"gallery/{stored}/{stored}.png,{stored}," in outcome.out
        listed = crnr("classify", "-", stdin=f"gallery/{given_name}/{given_name}.png\n")
        assert f"gallery/{stored}/{stored}.png,{stored}," in listed.out

    def test_names_in_a_gallery(self, crnr: Runner, forms: tuple[str, str]) -> None:
        stored, given_name = forms
        sample = f"gallery/{stored}/{stored}.png"
        removed = [f"{sample},{stored}"]
        for name in (f"gallery/{given_name}/{given_name}.png", f"gallery/*/{given_name}.p*"):
            outcome = crnr("remove", "gallery.h5", "--example", name, "--dry-run")
            assert outcome.out.splitlines()[1:] == removed
        assert crnr("remove", "gallery.h5", "--class", given_name, "--dry-run").exit == 0
        (crnr.here / "marked.csv").write_text(
            f"path,remove\ngallery/{given_name}/{given_name}.png,x\n", "utf-8"
        )
        outcome = crnr("remove", "gallery.h5", "--marked-in", "marked.csv", "--dry-run")
        assert outcome.out.splitlines()[1:] == removed
        draw_image(9, 9).save(crnr.here / "new.png")
        assert (
            "class" not in crnr("add", "gallery.h5", "new.png", "--class", given_name).err.partition("\n")[0]
        )
        assert crnr("rename", "gallery.h5", given_name, "other", "-q").exit == 0

    def test_add_finds_corrections_in_any_unicode_form(self, crnr: Runner, forms: tuple[str, str]) -> None:
        stored, given_name = forms
        (crnr.here / "new").mkdir()
        draw_image(7, 7).save(crnr.here / "new" / f"{stored}.png")
        text = f"path,label,corrected,when\nnew/{given_name}.png,bee,bee,\n"
        (crnr.here / "corrections.csv").write_text(text, "utf-8")
        outcome = crnr("add", "gallery.h5", "--corrections", "corrections.csv", "--json")
        assert outcome.exit == 0
        assert f"new/{stored}.png" in crnr("info", "gallery.h5", "--list-examples").out
