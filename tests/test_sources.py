from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from shell import Shell, make_features, make_pictures, picture, read_rows

from crnr_cli.errors import DataError, SampleError, UsageError
from crnr_cli.sources import npz
from crnr_cli.sources import tables as features
from crnr_cli.sources.base import Keys
from crnr_cli.sources.folders import Pictures, fingerprint, open_source
from crnr_cli.sources.tables import FeatureFile


def listed(*names: str) -> Pictures:
    source = open_source(names, Keys())
    assert isinstance(source, Pictures)
    return source


def test_a_listing_is_sorted_and_knows_its_classes(shell: Shell) -> None:
    make_pictures(shell.here / "q", ["b", "a/deep"], per_class=2)
    picture(0, 0).save("q/top.png")
    files = listed("q").files
    assert [file.path for file in files] == [
        "q/a/deep/0.png", "q/a/deep/1.png", "q/b/0.png", "q/b/1.png", "q/top.png"
    ]  # fmt: skip
    assert [file.folders for file in files] == [("a", "deep")] * 2 + [("b",)] * 2 + [()]
    stamp = Path("q/top.png").stat()
    assert (files[-1].stamp.size, files[-1].stamp.mtime_ns) == (stamp.st_size, stamp.st_mtime_ns)


def test_a_file_by_its_name_has_the_nearest_folder_first(shell: Shell) -> None:
    make_pictures(shell.here / "q", ["b"], per_class=1)
    assert listed("q/b/0.png").files[0].folders == ("b", "q")


def test_links_among_folders_are_followed_once(shell: Shell) -> None:
    """Ten folders that link to each other have millions of paths."""
    make_pictures(shell.here / "q", [f"f{i}" for i in range(10)], per_class=1)
    for i in range(10):
        for j in range(10):
            if i != j:
                Path(f"q/f{i}/to{j}").symlink_to(f"../f{j}")
    assert 10 <= len(listed("q")) <= 10 + 10 + 10


def test_a_linked_class_is_a_class(shell: Shell) -> None:
    make_pictures(shell.here / "elsewhere", ["x"], per_class=2)
    Path("q").mkdir()
    Path("q/a").symlink_to("../elsewhere/x")
    assert [file.folders for file in listed("q").files] == [("a",), ("a",)]


def test_names_that_no_file_can_have(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = None
    make_features(shell.here / "g.npz")
    make_pictures(shell.here / "g")
    shell.crnr("build", "g", "-q")
    names = ["a\0b", "x" * 5000, "g/ant/0.png/below"]
    outcome = shell.crnr("classify", "-", "-o", "out.csv", "-q", stdin="\n".join(names).encode())
    assert (outcome.exit, outcome.out, outcome.err) == (3, "", "")
    assert [row["status"] for row in read_rows(Path("out.csv"))] == ["unreadable", "unreadable", "vanished"]


def test_the_fingerprint_of_a_listing(shell: Shell) -> None:
    make_pictures(shell.here / "q", per_class=2)
    make_features(shell.here / "a.npz")
    first = fingerprint(listed("q"))
    assert fingerprint(listed("q")) == first
    assert fingerprint(listed("q", "q")) != first
    os.utime("q/ant/0.png", (1, 1))
    assert fingerprint(listed("q")) != first
    table = fingerprint(open_source(["a.npz"], Keys()))
    os.utime("a.npz", (1, 1))
    assert fingerprint(open_source(["a.npz"], Keys())) != table


def test_pictures_and_features_do_not_mix(shell: Shell) -> None:
    make_features(shell.here / "a.npz")
    make_pictures(shell.here / "q")
    with pytest.raises(UsageError, match="give pictures or feature files, not both at once"):
        open_source(["a.npz", "q"], Keys())


def test_feature_files_have_one_width(shell: Shell) -> None:
    make_features(shell.here / "a.npz", dimension=5)
    make_features(shell.here / "b.npz", dimension=6)
    with pytest.raises(DataError, match=r"^b.npz: 6 features a sample, but a.npz has 5$"):
        open_source(["a.npz", "b.npz"], Keys())


def test_a_pipe_that_is_called_as_features_is_never_opened(shell: Shell) -> None:
    os.mkfifo("x.h5")
    (file,) = listed("x.h5").files
    assert isinstance(file.error, SampleError)
    assert file.error.status == "not_regular"
    outcome = shell.crnr("info", "x.h5")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == "error: x.h5: not a regular file; name a gallery that `crnr build` wrote\n"


def test_labels_of_all_kinds_are_text(shell: Shell) -> None:
    expected = {
        "int": ([1, 2], ["1", "2"]),
        "whole": ([1.0, 2.0], ["1", "2"]),
        "half": ([0.5, 2.0], ["0.5", "2"]),
        "huge": ([1e300, 1.0], ["1e+300", "1"]),
        "odd": ([np.inf, 1.0], ["inf", "1"]),
        "truth": ([True, False], ["True", "False"]),
        "bytes": (np.array([b"a", b"\xe9"]), ["a", "\udce9"]),
    }
    for name, (labels, texts) in expected.items():
        np.savez(f"{name}.npz", features=np.eye(2), labels=labels)
        assert FeatureFile.open(Path(f"{name}.npz"), Keys()).labels == texts
    np.savez("complex.npz", features=np.eye(2), labels=[1j, 2j])
    with pytest.raises(DataError, match="labels must be numbers or text, not complex128"):
        FeatureFile.open(Path("complex.npz"), Keys())
    np.savez("half.npz", features=np.eye(2), labels=["a", "\ud800"])
    with pytest.raises(DataError, match=r"half\.npz: row 1 has a label or name that is no text"):
        FeatureFile.open(Path("half.npz"), Keys())


def test_features_that_change_while_they_are_read(shell: Shell) -> None:
    """HDF5 gives zeros for rows that were cut off."""
    with h5py.File("x.h5", "w") as file:
        file["features"] = np.ones((5000, 40))
        file["labels"] = np.arange(5000)
    features = FeatureFile.open(Path("x.h5"), Keys())
    assert features.rows(0, 10).all()
    os.truncate("x.h5", 500_000)
    with pytest.raises(DataError, match=r"x\.h5: has changed since this run began to read it; run it again"):
        features.rows(10, 5000)


def test_names_come_from_the_file_if_it_has_them(shell: Shell) -> None:
    np.savez("a.npz", features=np.eye(2), paths=["x.png", "y.png"])
    assert FeatureFile.open(Path("a.npz"), Keys()).names == ["x.png", "y.png"]
    np.savez("a.npz", features=np.eye(2), paths=["x.png"])
    assert FeatureFile.open(Path("a.npz"), Keys()).names == ["a.npz#0", "a.npz#1"]


def test_rows_that_cannot_be_read(shell: Shell) -> None:
    """A compressed piece that is damaged is found when it is unpacked."""
    with h5py.File("x.h5", "w") as file:
        data = np.random.default_rng(0).random((8, 4))
        file.create_dataset("features", data=data, chunks=(4, 4), compression="gzip", fletcher32=True)
        file["labels"] = np.arange(8)
        where = file["features"].id.get_chunk_info(1).byte_offset
    content = bytearray(Path("x.h5").read_bytes())
    content[where + 20] ^= 0xFF
    Path("x.h5").write_bytes(content)
    opened = FeatureFile.open(Path("x.h5"), Keys())
    np.testing.assert_array_equal(opened.rows(0, 4), data[:4])
    with pytest.raises(DataError, match=r"^x.h5: cannot read rows 4 to 8 \("):
        opened.rows(4, 8)


def test_labels_that_cannot_be_read(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise OSError("no luck")

    with pytest.raises(DataError, match=r"^x.h5: cannot read its labels or names \(no luck\)$"):
        features._texts(Path("x.h5"), Broken())


def test_a_file_of_features_that_vanished(shell: Shell) -> None:
    with pytest.raises(DataError, match=r"^x.npz: cannot read it \(No such file or directory\)$"):
        FeatureFile.open(Path("x.npz"), Keys())


def test_an_npz_that_swells_beyond_reason(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed("x.npz", features=np.zeros((1000, 100)))
    assert FeatureFile.open(Path("x.npz"), Keys()).values.shape == (1000, 100)
    monkeypatch.setattr(npz, "_BEST_RATIO", 10)
    with pytest.raises(DataError, match=r"features.npy declares more than it can hold"):
        FeatureFile.open(Path("x.npz"), Keys())


def test_an_empty_label_is_refused(shell: Shell) -> None:
    np.savez("x.npz", features=np.eye(2), labels=["a", ""])
    outcome = shell.crnr("build", "x.npz")
    assert (outcome.exit, outcome.out, outcome.err) == (1, "", "error: x.npz#1: its label is empty\n")


def test_many_left_out_are_cut(shell: Shell) -> None:
    make_pictures(shell.here / "g")
    for i in range(13):
        Path(f"g/ant/empty{i:02}.png").write_bytes(b"")
    outcome = shell.crnr("build", "g")
    assert outcome.exit == 3
    assert outcome.err.count("left out: ") == 10
    assert "... and 3 more\n" in outcome.err


@pytest.mark.parametrize("stop", ["SIGINT", "SIGTERM"])
def test_a_build_that_is_stopped_leaves_nothing(shell: Shell, stop: str) -> None:
    import signal

    make_pictures(shell.here / "g")
    Path("gallery.h5").write_text("old")
    from crnr_cli.jobs import build

    def stopped(*args: object) -> None:
        signal.raise_signal(signal.Signals[stop])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "make_gallery", stopped)
        outcome = shell.crnr("build", "g")
    number = signal.Signals[stop].value
    words = {"SIGINT": "interrupted\n", "SIGTERM": "terminated\n"}[stop]
    assert (outcome.exit, outcome.out, outcome.err) == (128 + number, "", words)
    assert Path("gallery.h5").read_text() == "old"
    assert shell.files() == {"g", "gallery.h5"}
