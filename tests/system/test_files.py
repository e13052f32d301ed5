"""Writing files: whole or not at all, and only one writer at a time."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from crnr_cli.errors import OutputError
from crnr_cli.system import files
from crnr_cli.system.files import check_output, claimed, replacing


def test_a_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with replacing(path) as part:
        part.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def write_and_fail(path: Path, error: Exception) -> None:
    with replacing(path) as part:
        part.write_text("new")
        raise error


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError):
        write_and_fail(path, ZeroDivisionError())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failing_disk_is_reported(tmp_path: Path, code: int) -> None:
    path = tmp_path / "x"
    with pytest.raises(OutputError) as raised:
        write_and_fail(path, OSError(code, "words"))
    assert str(raised.value) == (
        f"{path}: cannot write ({os.strerror(code)}); the old file, if any, is intact"
    )
    assert list(tmp_path.iterdir()) == []


def test_another_os_error_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="words"), replacing(tmp_path / "x"):
        raise OSError(errno.EINVAL, "words")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with replacing(tmp_path / "link") as part:
        part.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_to_directly(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()))
    reader.start()
    with replacing(tmp_path / "pipe") as part:
        part.write_text("data")
    reader.join(30)
    assert got == ["data"]
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_part_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "x.part").mkdir()
    with pytest.raises(OutputError, match=r"x: cannot write \(Is a directory\)$"), claimed(tmp_path / "x"):
        pass


def test_the_lock_is_on_the_file_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between our open and our lock another run ends: it removes the file, or puts it in place."""
    part = tmp_path / "x.part"
    flock = files.fcntl.flock
    ends = [part.unlink, lambda: part.replace(tmp_path / "x"), lambda: (part.unlink(), part.touch())]

    def slow_flock(handle: int, how: int) -> None:
        if ends:
            ends.pop()()
        flock(handle, how)

    monkeypatch.setattr(files.fcntl, "flock", slow_flock)
    with claimed(tmp_path / "x") as claimed_part:
        assert claimed_part == part
        with pytest.raises(OutputError, match="another crnr is writing it"), claimed(tmp_path / "x"):
            pass
    assert not ends


def test_a_writer_that_is_done_leaves_the_next_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one may begin as soon as the file is in place."""
    path = tmp_path / "x"
    sync = files._sync_folder

    def slow_sync(folder: Path) -> None:
        monkeypatch.setattr(files, "_sync_folder", sync)
        with claimed(path) as part:
            part.write_text("of the next one")

    monkeypatch.setattr(files, "_sync_folder", slow_sync)
    with replacing(path) as part:
        part.write_text("done")
    assert path.read_text() == "done"
    assert part.read_text() == "of the next one"


def test_a_device_needs_no_permission_for_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, how: str(path) != "/dev" and access(path, how))
    check_output(Path("/dev/null"))
    with pytest.raises(OutputError, match="no permission"):
        check_output(Path("/dev/new"))


def test_an_output_that_is_an_input(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("data")
    os.link(tmp_path / "x", tmp_path / "y")
    with pytest.raises(OutputError, match="is an input of this run; write to another file"):
        check_output(tmp_path / "x", ["-", str(tmp_path / "y")])
    check_output(tmp_path / "x", ["-", str(tmp_path / "z")])


def test_disk_errors_have_names() -> None:
    """The errors that a user can fix are those that the kernel gives for a full or failing disk."""
    assert {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG} <= files._DISK_ERRORS
