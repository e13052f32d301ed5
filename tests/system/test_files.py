"""Writing files: whole or not at all, and only one writer at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
import threading
from collections import Counter
from pathlib import Path

import pytest

from crnr_cli.errors import OutputError
from crnr_cli.results.journal import resumable
from crnr_cli.system import descriptors, files
from crnr_cli.system.files import claimed, replacing

NOBODY = 0xFFFFFFFF  # in an access control list, where an entry is for no user or group by number


def test_a_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with replacing(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def write_and_fail(path: Path, error: Exception) -> None:
    with replacing(path) as file:
        file.write(b"new")
        raise error


@pytest.mark.parametrize("content", [b"", b"new"])
def test_a_block_that_writes_nothing_may_leave_the_old_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    before = path.stat()
    with replacing(path, if_written=True) as file:
        file.write(content)
    assert path.read_bytes() == (content or b"old")
    assert (path.stat().st_ino == before.st_ino) == (not content)
    assert [one.name for one in tmp_path.iterdir()] == ["x"]


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
    with replacing(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_to_directly(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()))
    reader.start()
    with replacing(tmp_path / "pipe") as file:
        file.write(b"data")
    reader.join(30)
    assert got == ["data"]
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def occupied(place: Path, kind: str) -> Path | None:
    """Make something that is not a partial file; return the file that it leads to, if any."""
    victim = place.parent / "victim"
    if kind == "directory":
        place.mkdir()
        return None
    if kind == "pipe":
        os.mkfifo(place)
        return None
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(place.parent):
            listening.bind(place.name)
        return None
    victim.write_bytes(b"secret")
    if kind == "link":
        place.symlink_to(victim)
    else:
        os.link(victim, place)
    return victim


@pytest.mark.parametrize("kind", ["directory", "pipe", "socket", "link", "second name"])
@pytest.mark.parametrize("ending", [".crnr-part", ".crnr-journal", ".crnr-lock"])
def test_the_name_of_a_partial_file_is_occupied(tmp_path: Path, ending: str, kind: str) -> None:
    """In a folder that others may write to, they choose what has these names."""
    victim = occupied(tmp_path / f"x{ending}", kind)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(OutputError) as refused, resumable(tmp_path / "x", {}, resume=False):
        pass
    assert str(refused.value) == (
        f"{tmp_path}/x: while it is written, crnr needs the name x{ending}, which is a link, a folder or "
        "the like; remove it, or write to another file"
    )
    assert victim is None or victim.read_bytes() == b"secret"
    left = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in left if not name.endswith(".crnr-part")] == [
        name for name in before if not name.endswith(".crnr-part")
    ]


def test_a_link_that_is_put_in_the_place_of_a_partial_file(tmp_path: Path) -> None:
    """The output goes to the opened file, and the link is not renamed."""
    (tmp_path / "victim").write_bytes(b"secret")

    def write() -> None:
        with replacing(tmp_path / "x") as file:
            (tmp_path / "x.crnr-part").unlink()
            (tmp_path / "x.crnr-part").symlink_to("victim")
            file.write(b"new")

    with pytest.raises(OutputError, match=r"another program has replaced x\.crnr-part; try again"):
        write()
    assert (tmp_path / "victim").read_bytes() == b"secret"
    assert not (tmp_path / "x").exists()


def test_a_file_of_the_user_that_ends_in_part_is_left_alone(tmp_path: Path) -> None:
    for ending in (".part", ".part.journal", ".journal", ".tmp", "~"):
        (tmp_path / f"x{ending}").write_text("mine")
    with resumable(tmp_path / "x", {}, resume=False):
        pass
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != "x"} == dict.fromkeys(
        ("x.part", "x.part.journal", "x.journal", "x.tmp", "x~"), "mine"
    )


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o604])
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_permissions_of_the_old_one(tmp_path: Path, mode: int, umask: int) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    path.chmod(mode)
    before = os.umask(umask)
    try:
        with replacing(path) as file:
            # Neither may others read the part before it is whole.
            for ending in (".crnr-part", ".crnr-lock"):
                assert stat.S_IMODE((tmp_path / f"x{ending}").stat().st_mode) == mode | 0o600
            file.write(b"new")
        with replacing(tmp_path / "y") as file:
            file.write(b"new")
    finally:
        os.umask(before)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "y").stat().st_mode) == 0o666 & ~umask


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_new_file_has_the_owner_and_the_group_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    os.chown(path, 12345, 23456)
    path.chmod(0o640)
    with replacing(path) as file:
        file.write(b"new")
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 23456, 0o640)


def test_a_lost_group_gives_no_permissions_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    path.chmod(0o664)
    status = Path.stat

    def of_another_group(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = status(self, follow_symlinks=follow_symlinks)
        return os.stat_result((*found[:5], 34567, *found[6:])) if self == path else found

    def refused(handle: int, user: int, group: int) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "stat", of_another_group)
    monkeypatch.setattr(os, "fchown", refused)
    with replacing(path) as file:
        file.write(b"new")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644  # noqa: PTH116


def test_an_access_control_list_is_kept(tmp_path: Path) -> None:
    """Without it, a group would get the permissions of the mask, which may be more."""
    path = tmp_path / "x"
    path.write_text("old")
    entries = [(0x01, 6, NOBODY), (0x02, 6, 12345), (0x04, 0, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)]
    rules = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", rules)
    except (AttributeError, OSError):
        pytest.skip("no access control lists here")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"
    assert os.getxattr(path, "system.posix_acl_access") == rules


@pytest.mark.parametrize("length", [200, 243, 244, 250, 255])
def test_every_name_that_the_disk_takes_can_be_written(tmp_path: Path, length: int) -> None:
    """Also if nothing can be appended to it; and two such names do not get in each other's way."""
    path = tmp_path / ("é" * (length // 2) + "e" * (length % 2))
    assert len(os.fsencode(path.name)) == length
    twin = path.with_name(path.name[:-1] + "x")
    with resumable(path, {"a": 1}, resume=False) as one, resumable(twin, {"a": 1}, resume=False) as other:
        one.write(b"one")
        one.end_batch(Counter(), 0)
        other.write(b"other")
        other.end_batch(Counter(), 0)
    assert {found.name: found.read_bytes() for found in tmp_path.iterdir()} == {
        path.name: b"one",
        twin.name: b"other",
    }


def test_the_lock_is_on_the_file_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between our open and our lock another run ends, which removes the file; and a third one may begin."""
    lock = tmp_path / "x.crnr-lock"
    flock = descriptors.fcntl.flock
    ends = [lock.unlink, lambda: lock.replace(tmp_path / "y"), lambda: (lock.unlink(), lock.touch())]

    def slow_flock(handle: int, how: int) -> None:
        if ends:
            ends.pop()()
        flock(handle, how)

    monkeypatch.setattr(descriptors.fcntl, "flock", slow_flock)
    with claimed(tmp_path / "x"):
        assert lock.exists()
        with pytest.raises(OutputError, match="another crnr is writing it"), claimed(tmp_path / "x"):
            pass
    assert not ends


def test_a_writer_that_is_done_leaves_the_next_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one may begin as soon as the file is in place."""
    path = tmp_path / "x"
    sync = descriptors.sync_folder

    def slow_sync(folder: Path) -> None:
        monkeypatch.setattr(descriptors, "sync_folder", sync)
        with claimed(path, keep=True) as claim:
            claim.file.write(b"of the next one")

    monkeypatch.setattr(descriptors, "sync_folder", slow_sync)
    with replacing(path) as file:
        file.write(b"done")
    assert path.read_text() == "done"
    assert (tmp_path / "x.crnr-part").read_text() == "of the next one"


def test_disk_errors_have_names() -> None:
    """The errors that a user can fix are those that the kernel gives for a full or failing disk."""
    assert {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG} <= files._DISK_ERRORS
