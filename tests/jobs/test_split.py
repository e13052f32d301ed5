"""Split: every image on one side, nothing overwritten, and stopped anywhere."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import pytest
from PIL import ImageOps

from crnr_cli.errors import CrnrError, DataError, OutputError, UsageError
from crnr_cli.jobs.split import Portion, SplitOptions, SplitReport, split
from crnr_cli.sorting import placing
from crnr_cli.sorting.placing import ALREADY_THERE, LEFT_OUT
from crnr_cli.system.files import locked
from helpers.failing import Killed, fail_at
from helpers.racing import make_first
from helpers.runner import Runner, rows
from helpers.samples import draw_image, draw_photo, make_features, make_images

HOWS = ("copy", "hardlink", "link")
each_how = pytest.mark.parametrize("how", HOWS)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*names: str, **options: Any) -> SplitReport:
    return split(names or ("all",), SplitOptions(gallery=Path("g"), queries=Path("q"), **options))


def files(folder: str | Path) -> dict[str, bytes]:
    """Return all files below a folder, links followed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


@each_how
@pytest.mark.parametrize(
    ("portion", "in_gallery"),
    [(Portion(0.8), 4), (Portion(0.5), 3), (Portion(per_class=2), 2), (Portion(per_class=9), 4)],
)
def test_every_image_is_on_one_side(how: str, portion: Portion, in_gallery: int) -> None:
    make_images(Path("all"), per_class=5)
    before = files("all")
    report = run(how=how, portion=portion)
    gallery, queries = files("g"), files("q")
    assert gallery.keys().isdisjoint(queries)
    assert gallery | queries == before == files("all")
    assert report.classes == dict.fromkeys(("ant", "bee", "cow"), (in_gallery, 5 - in_gallery))
    assert Counter(name.split("/")[0] for name in gallery) == dict.fromkeys(report.classes, in_gallery)
    assert (report.count(how), report.count(ALREADY_THERE), report.left_out) == (15, 0, [])
    for row in report.rows:
        path, target = Path(row.path), Path(row.target)
        assert target.relative_to(target.parts[0]) == path.relative_to("all")
        assert target.is_symlink() == (how == "link")
        assert path.samefile(target) == (how != "copy")
        assert path.stat().st_mtime_ns == target.stat().st_mtime_ns
    assert run(how=how, portion=portion).count(ALREADY_THERE) == 15  # nothing is left to do


def test_the_choice_depends_on_seed_and_names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    make_images(Path("all"), per_class=8)
    run()
    expected = files("g")
    shutil.copytree("all", "elsewhere/deep/copy")
    listed = os.scandir

    class Reversed(list[os.DirEntry[str]]):
        def __enter__(self) -> Reversed:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    with monkeypatch.context() as patch:
        patch.setattr(
            os, "scandir", lambda path: Reversed(sorted(listed(path), key=lambda e: e.name, reverse=True))
        )
        for name in (f"{Path.cwd()}/elsewhere/deep/copy/", "all"):
            shutil.rmtree("g")
            shutil.rmtree("q")
            run(name)
            assert files("g") == expected
    split(["all"], SplitOptions(gallery=Path("g2"), queries=Path("q2"), seed=1))
    assert files("g2").keys() != expected.keys()


def test_exact_copies_are_on_the_same_side() -> None:
    """Also copies in another class, and with any name."""
    for seed in range(12):
        folder = Path(f"run {seed}")
        make_images(folder / "all", ("ant", "bee"), per_class=6)
        for i in range(3):
            shutil.copy(folder / "all/ant" / f"{i}.png", folder / "all/bee" / f"copy {i}.png")
            os.utime(folder / "all/bee" / f"copy {i}.png", (0, 0))
        os.link(folder / "all/ant/5.png", folder / "all/ant/again.png")
        (folder / "all/bee/link.png").symlink_to("../ant/4.png")
        with chdir(folder):
            report = run(portion=Portion(0.5), seed=seed)
        gallery, queries = set(files(folder / "g").values()), set(files(folder / "q").values())
        assert gallery.isdisjoint(queries)
        assert report.copies == 5
        assert all(min(sides) >= 1 for sides in report.classes.values())


def test_a_class_with_one_image_is_in_the_gallery() -> None:
    make_images(Path("all"), ("ant", "bee"), per_class=3)
    (Path("all") / "one").mkdir()
    draw_image(2, 0).save("all/one/1.png")
    (Path("all") / "same").mkdir()
    for i in range(3):
        draw_image(3, 0).save(f"all/same/{i}.png")
    report = run(portion=Portion(0.5))
    assert (report.classes["one"], report.classes["same"]) == ((1, 0), (3, 0))
    (note,) = report.notes
    assert note.text == "no queries of 2 classes, whose images are too few or all the same: one, same"


def test_split_keeps_folders_below_a_class() -> None:
    make_images(Path("all/ant"), ("old", "new"), per_class=3)
    make_images(Path("all"), ("bee",), per_class=3)
    run()
    assert files("g") | files("q") == files("all")
    for folder, source in (("all", "."), ("all/ant", "..")):
        with chdir(folder):
            up = "/".join(".." for _ in Path(folder).parts)
            report = split([source], SplitOptions(gallery=Path(up, "g"), queries=Path(up, "q")))
        assert (report.count(ALREADY_THERE), len(report.rows)) == (9, 9)


def test_images_of_two_sources_may_have_one_name() -> None:
    make_images(Path("a"), ("ant", "bee"), per_class=3)
    make_images(Path("b"), ("ant", "bee"), per_class=3, first=0, size=(9, 9))
    report = run("a", "b")
    both = {**files("g"), **files("q")}
    assert both.keys() == {
        f"{label}/{i}{n}.png" for label in ("ant", "bee") for i in range(3) for n in ("", " (2)")
    }
    assert Counter(both.values()) == Counter([*files("a").values(), *files("b").values()])
    assert report.left_out == []
    shutil.rmtree("g")
    shutil.rmtree("q")
    run("b", "a")
    assert {**files("g"), **files("q")} == both  # in any order


def test_labels_of_a_table(crnr: Runner) -> None:
    """A label may be any text; as the name of a folder it leads nowhere else."""
    make_images(Path("all"), ("x", "y"), per_class=4)
    lines = ["path,label"]
    for folder, label in (("x", "../../etc"), ("y", "nice one")):
        lines += [f"all/{folder}/{i}.png,{label}" for i in range(4 if folder == "x" else 3)]
    Path("labels.csv").write_text("\n".join(lines) + "\n")
    result = crnr("split", "all", "--labels", "labels.csv", "--train", "g", "--test", "q", "--json")
    assert result.exit == 3
    assert result.err.startswith("left out: all/y/3.png: has no label in labels.csv\n")
    record = json.loads(result.out)
    assert record["classes"] == {
        "%2E./../etc".replace("/", "%2F"): {"gallery": 3, "queries": 1},
        "nice one": {"gallery": 2, "queries": 1},
    }
    assert record["left_out"] == [{"name": "all/y/3.png", "reason": "has no label in labels.csv"}]
    assert len(files("g")) + len(files("q")) == 7
    assert {path.name for path in Path().iterdir()} == {"all", "g", "q", "labels.csv"}


def test_split_leaves_other_files_in_place() -> None:
    make_images(Path("all"), ("ant", "bee"), per_class=3)
    Path("all/README.md").write_text("about")
    Path("all/ant/notes.txt").write_text("about ants")
    Path("all/bee/.hidden").write_text("x")
    draw_image(0, 9).save("all/ant/without suffix", "png")
    draw_image(0, 10).save("all/loose.png")
    report = run()
    assert report.unrelated == 2
    assert [(row.path, row.result, row.reason) for row in report.left_out] == [
        ("all/loose.png", LEFT_OUT, "not in a class folder")
    ]
    assert {**files("g"), **files("q")}.keys() == {
        *(f"{label}/{i}.png" for label in ("ant", "bee") for i in range(3)),
        "ant/without suffix",
    }
    with pytest.raises(
        DataError, match=r"all/loose.png: not in a class folder; stopped: 1 of 8 files has to be"
    ):
        run(max_failure_rate=0.0)


def test_other_files_in_the_folders_are_never_touched() -> None:
    make_images(Path("all"), per_class=4)
    Path("g/ant").mkdir(parents=True)
    Path("g/.DS_Store").write_text("of the system")
    run()
    done = files("g") | files("q")
    # The same images with another seed would be on both sides in the end.
    with pytest.raises(OutputError, match=r"is not part of this split; choose an empty folder, or one of"):
        run(seed=5)
    # A link to a folder may lead to any images.
    Path("g/more").symlink_to("../all")
    with pytest.raises(OutputError, match=r"^g/more: is not part of this split"):
        run()
    Path("g/more").unlink()
    target = next(name for name in files("g") if name.endswith(".png"))
    Path("g", target).write_text("mine")
    with pytest.raises(OutputError, match=rf"^g/{target}: exists already, and differs from this split"):
        run()
    assert files("g") | files("q") == {**done, target: b"mine"}


def test_split_does_not_overwrite_a_file_that_appears_last(monkeypatch: pytest.MonkeyPatch) -> None:
    make_images(Path("all"), per_class=4)
    copied = placing.copy_new

    def slow(source: placing.Place, target: placing.Place, part: placing.Place, **options: Any) -> None:
        if target.name == "1.png":
            Path(f"/proc/self/fd/{target.folder}", target.name).write_text("mine")
        copied(source, target, part, **options)

    monkeypatch.setattr("crnr_cli.sorting.placing.copy_new", slow)
    report = run()
    assert {(row.path, row.reason) for row in report.left_out} == {
        (f"all/{label}/1.png", "there is another file of this name now") for label in ("ant", "bee", "cow")
    }
    assert Counter((files("g") | files("q")).values())[b"mine"] == 3


@pytest.mark.parametrize(
    ("gallery", "queries", "message"),
    [
        ("g", "g", "--train and --test: give two folders, neither of them in the other"),
        ("g", "./all/../g", "--train and --test: give two folders, neither of them in the other"),
        ("g", "g/q", "--train and --test: give two folders, neither of them in the other"),
        ("q/g", "q", "--train and --test: give two folders, neither of them in the other"),
        ("all/g", "q", "all/g: is inside all, which is an input; choose another folder"),
        ("g", "all", "all: is inside all, which is an input; choose another folder"),
        ("file", "q", "file: is not a folder; choose another one"),
        ("link", "q", "link: is a link to a missing folder; choose another one"),
        ("no/where", "q", "no/where: the folder no does not exist; create it first"),
    ],
)
def test_folders_that_cannot_be(gallery: str, queries: str, message: str) -> None:
    make_images(Path("all"), per_class=2)
    Path("file").touch()
    Path("link").symlink_to("nowhere")
    before = files(".")
    with pytest.raises(CrnrError) as caught:
        split(["all"], SplitOptions(gallery=Path(gallery), queries=Path(queries)))
    assert str(caught.value) == message
    assert files(".") == before


def test_sources_that_cannot_be_split() -> None:
    make_features(Path("features.npz"))
    with pytest.raises(UsageError, match="split takes images only; for feature files, use `crnr compare"):
        run("features.npz")
    Path("all").mkdir()
    draw_image(0, 0).save("all/1.png")
    with pytest.raises(DataError, match=r"^no image has a class: all/1.png: not in a class folder"):
        run()
    Path("all/1.png").rename("all/1.txt")
    Path("all/1.txt").write_text("text")
    with pytest.raises(
        DataError, match=r"^none of the 1 file is an image; give a folder with one folder of images"
    ):
        run()
    assert not Path("g").exists()


def test_split_refuses_a_second_run() -> None:
    make_images(Path("all"), per_class=2)
    Path("q").mkdir()
    with locked(Path("q/.crnr-split.lock"), Path("q")), pytest.raises(OutputError, match=r"^q: "):
        run()
    assert not Path("g").exists()
    assert run().count("copy") == 6


def test_split_uses_folders_that_another_process_makes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    make_images(Path("all"), per_class=2)
    make_first(monkeypatch)
    assert run().count("copy") == 6
    assert len(files("g")) + len(files("q")) == 6


@pytest.mark.parametrize("error", [Killed, OSError])
@each_how
def test_split_recovers_from_any_failing_call(
    how: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_images(tmp_path / "start/all", ("ant", "bee"), per_class=2)
    with chdir(tmp_path / "start"):
        run(how=how)
        gallery, queries, before = files("g"), files("q"), files("all")
    number, is_over = 0, False
    while not is_over:
        number += 2 if error is OSError else 1  # see fail_at
        shutil.copytree(tmp_path / "start/all", tmp_path / str(number) / "all")
        with chdir(tmp_path / str(number)):
            with monkeypatch.context() as broken:
                calls = fail_at(number, error, broken)
                with suppress(Killed, OSError, OutputError):
                    run(how=how)
                is_over = number > 2 * calls[0] + 1
            for name, content in {**files("g"), **files("q")}.items():
                if not Path(name).name.startswith(".crnr-split"):
                    assert content == before[name], number  # whole, if it is there
            run(how=how)
            assert (files("g"), files("q"), files("all")) == (gallery, queries, before), number
        assert number < 300


def test_split_prints_a_table_of_classes(crnr: Runner) -> None:
    make_images(Path("all"), ("ant", "bee"), per_class=5)
    shutil.copy("all/ant/0.png", "all/ant/copy.png")
    Path("all/ant/notes.txt").write_text("about ants")
    arguments = ("split", "all", "--train", "g", "--test", "q")
    planned = crnr(*arguments, "--dry-run")
    assert planned.exit == 0
    assert {path.name for path in Path().iterdir()} == {"all"}
    notes = (
        "note: not touched, because not images: 1 file\n"
        "note: 1 file is an exact copy of another file; copies stay together\n"
        "g: 9 images of 2 classes, 4 to 5 per class\nq: 2 images of 2 classes, 1 per class\n"
    )
    assert planned.err == f"{notes}11 files would be copied\n"
    done = crnr(*arguments)
    assert (done.exit, done.out) == (0, "")
    ending = "to find near duplicates on both sides: crnr audit g --queries q\n"
    assert done.err == f"{notes}11 files copied\n{ending}"
    targets = {row["path"]: row["target"] for row in rows(planned.out)}
    assert {Path(path).read_bytes() for path in targets} == {
        Path(path).read_bytes() for path in targets.values()
    }
    assert sorted(targets.values()) == sorted(f"{side}/{name}" for side in ("g", "q") for name in files(side))
    again = crnr(*arguments, "--json", "-q")
    assert (again.exit, again.err) == (0, "")
    assert json.loads(again.out) == {
        "gallery": "g",
        "queries": "q",
        "how": "copy",
        "done": 0,
        "there": 11,
        "classes": {"ant": {"gallery": 5, "queries": 1}, "bee": {"gallery": 4, "queries": 1}},
        "copies": 1,
        "events": None,
        "similar": None,
        "passed_over": 1,
        "left_out": [],
        "notes": [],
    }
    assert crnr(*arguments).err == f"{notes}0 files copied, 11 are already there\n{ending}"
    # The split folders can be used.
    assert crnr("build", "g", "-q").exit == 0
    assert json.loads(crnr("evaluate", "q", "--json").out)["n"] == 2


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_similar_images_stay_together_on_request(crnr: Runner, seed: str) -> None:
    for number, label in enumerate(("ant", "bee")):
        (crnr.here / "all" / label).mkdir(parents=True)
        for i in range(12):
            draw_photo(100 * number + i).save(f"all/{label}/{i}.png")
    arguments = ("split", "all", "--train", "g", "--test", "q", "--share", "0.5", "--seed", seed)
    clean = crnr(*arguments, "--dry-run", "--group-similar")
    assert (clean.exit, clean.out) == (0, crnr(*arguments, "--dry-run").out)
    assert "stay together" not in clean.err
    for i in range(6):
        draw_photo(i).resize((100, 75)).save(f"all/ant/near{i}.jpg")
        ImageOps.mirror(draw_photo(100 + i)).save(f"all/bee/mirrored{i}.png")
    shutil.copy("all/ant/near0.jpg", "all/ant/near6.jpg")  # a copy of a near duplicate of 0.png
    Path("all/bee/broken.png").write_bytes(b"no image")

    def side_of(planned: str) -> dict[str, str]:
        return {row["path"].removeprefix("all/"): row["target"].split("/")[0] for row in rows(planned)}

    def count_apart(side: dict[str, str]) -> int:
        pairs = [(f"{i}.png", f"near{i}.jpg") for i in range(6)] + [("0.png", "near6.jpg")]
        return sum(side[f"ant/{one}"] != side[f"ant/{other}"] for one, other in pairs) + sum(
            side[f"bee/{i}.png"] != side[f"bee/mirrored{i}.png"] for i in range(6)
        )

    assert count_apart(side_of(crnr(*arguments, "--dry-run").out)) > 0
    result = crnr(*arguments, "--dry-run", "--group-similar")
    assert result.exit == 0
    assert count_apart(side_of(result.out)) == 0
    assert "note: 1 file is an exact copy of another file; copies stay together\n" in result.err
    similar = "note: 12 files are near duplicates or mirror images of other files; they stay together\n"
    assert similar in result.err
    done = crnr(*arguments, "--group-similar")
    assert (done.exit, done.out) == (0, "")
    assert similar in done.err
    ending = "to find images of the same scene on both sides: crnr audit g --queries q\n"
    assert done.err.endswith(f"38 files copied\n{ending}")
    again = crnr(*arguments, "--group-similar", "--json", "-q")
    assert (again.exit, again.err) == (0, "")
    record = json.loads(again.out)
    assert (record["copies"], record["similar"], record["there"]) == (1, 12, 38)


def test_unreadable_images_are_split_as_without_grouping(crnr: Runner) -> None:
    for label in ("ant", "bee"):
        (crnr.here / "all" / label).mkdir(parents=True)
        for i in range(5):
            Path(f"all/{label}/{i}.png").write_bytes(b"no image" * (i + 1) + label.encode())
    arguments = ("split", "all", "--train", "g", "--test", "q", "--dry-run")
    plain, grouped = crnr(*arguments), crnr(*arguments, "--group-similar")
    assert (grouped.exit, grouped.out, grouped.err) == (0, plain.out, plain.err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--share", "1"), "--share 1 would leave no queries; give a number between 0 and 1"),
        (
            ("--share", "0.5", "--per-class", "3"),
            "--share and --per-class contradict each other; give one of them",
        ),
        (("--share", "0"), "--share must be above 0 and at most 1, not 0 (see `crnr split --help`)"),
        (("--train", ""), "--train: the name of the folder is empty"),
        (
            ("--how", "move"),
            "--how: 'move' is not one of copy, hardlink, link (see `crnr split --help`)",
        ),
    ],
)
def test_split_refuses_invalid_arguments(crnr: Runner, arguments: tuple[str, ...], message: str) -> None:
    make_images(Path("all"), per_class=2)
    result = crnr("split", "all", "--train", "g", "--test", "q", *arguments)
    assert (result.exit, result.out, result.err) == (2, "", f"error: {message}\n")
    assert {path.name for path in Path().iterdir()} == {"all"}
