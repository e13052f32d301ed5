"""Python imports this when it starts: the system then looks like macOS or Windows to crnr.

CRNR_TEST_SYSTEM is `darwin` or `win32`; child processes inherit it. Modules of crnr get other modules `os`,
`sys`, `signal` and so on than everybody else: without the names that are missing there, and with functions
that refuse what they refuse there. Other packages see the system as it is, as theirs are made for each.

Rules about the files themselves apply to all processes: on Windows, a file that this process has open or
mapped, by whatever library, cannot be renamed, replaced or removed.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import os
import signal
import stat
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

SYSTEM = os.environ.get("CRNR_TEST_SYSTEM", "")
O_BINARY = 0x8000  # as on Windows; the kernel ignores it
CREATE_NO_WINDOW = 0x08000000
SIGBREAK = 21
# Those that Linux and the system share are not hidden: they exist on all.
LINUX_ALONE = {
    "O_PATH", "copy_file_range", "eventfd", "getxattr", "listxattr", "memfd_create", "pipe2", "posix_fadvise",
    "removexattr", "sched_getaffinity", "sched_setaffinity", "setxattr",
}  # fmt: skip
POSIX_ALONE = {
    "O_CLOEXEC", "O_DIRECTORY", "O_DSYNC", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "chown",
    "chroot", "confstr", "ctermid", "fchdir", "fchmod", "fchown", "fdatasync", "fork", "forkpty",
    "fpathconf", "fstatvfs", "getegid", "geteuid", "getgid", "getgroups", "getloadavg", "getpgid",
    "getpriority", "getsid", "getuid", "killpg", "lchown", "lockf", "mkfifo", "mknod", "nice", "openpty",
    "pathconf", "posix_spawn", "pread", "preadv", "pwrite", "pwritev", "sendfile", "set_blocking", "setsid",
    "setuid", "statvfs", "sync", "sysconf", "uname", "wait", "wait3", "waitid",
}  # fmt: skip
WINDOWS_SIGNALS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"}
WINDOWS_HAS = {"signal", "getsignal", "raise_signal", "set_wakeup_fd", "default_int_handler", "Signals"}


class Imitated(ModuleType):
    """Another module without some names, and with others in their place."""

    def __init__(self, original: ModuleType, without: set[str], others: Mapping[str, Any]) -> None:
        super().__init__(original.__name__)
        self.__dict__.update(_original=original, _without=without, **others)

    def __getattr__(self, name: str) -> Any:
        if name in self._without:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._original, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._original, name)


def refuse(code: int, *names: object) -> OSError:
    return OSError(code, os.strerror(code), *names)


def of_macos() -> dict[str, ModuleType | None]:
    import fcntl
    import resource

    full_sync = 51

    def control(handle: int, what: int, *more: Any) -> Any:
        return os.fsync(handle) if what == full_sync else fcntl.fcntl(handle, what, *more)

    def set_limit(what: int, limits: tuple[int, int]) -> None:
        if what == resource.RLIMIT_AS:
            raise ValueError("current limit exceeds maximum limit")
        resource.setrlimit(what, limits)

    return {
        "os": Imitated(os, LINUX_ALONE, {}),
        "fcntl": Imitated(fcntl, {"F_OFD_SETLK"}, {"fcntl": control, "F_FULLFSYNC": full_sync}),
        "resource": Imitated(resource, {"prlimit", "RUSAGE_THREAD"}, {"setrlimit": set_limit}),
        "signal": Imitated(signal, {"SIGPWR", "SIGPOLL", "SIGSTKFLT"}, {}),
        "msvcrt": None,
    }


def of_windows() -> dict[str, ModuleType | None]:
    hidden = {name for name in dir(signal) if name.isupper() or name.islower()} - WINDOWS_HAS
    hidden -= WINDOWS_SIGNALS | {"SIG_DFL", "SIG_IGN"} | {name for name in hidden if name.startswith("__")}

    def handle(number: int, handler: Any) -> Any:
        if number not in {getattr(signal, name) for name in WINDOWS_SIGNALS} | {SIGBREAK}:
            raise ValueError("signal number out of range")
        return signal.signal(number, handler)

    def library(name: str | None, *more: Any, **named: Any) -> Any:
        if name is None:
            raise TypeError("there is no such library")
        return ctypes.CDLL(name, *more, **named)

    def start(command: Any, *, creationflags: int = 0, **options: Any) -> Any:
        missing = {"preexec_fn", "pass_fds", "start_new_session", "process_group", "user"} & options.keys()
        if missing or creationflags != CREATE_NO_WINDOW:
            raise ValueError(f"{missing} {creationflags}")
        return subprocess.Popen(command, **options)

    return {
        "os": Imitated(os, LINUX_ALONE | POSIX_ALONE, windows_os()),
        "signal": Imitated(signal, hidden, {"SIGBREAK": SIGBREAK, "signal": handle}),
        "ctypes": Imitated(ctypes, set(), {"CDLL": library}),
        "subprocess": Imitated(subprocess, {"run", "call"}, {"Popen": start}),
        "msvcrt": Imitated(ModuleType("msvcrt"), set(), {"LK_NBLCK": 2, "locking": lock_bytes}),
        "fcntl": None,
        "resource": None,
    }


def windows_os() -> dict[str, Any]:
    """Without descriptors of folders: every function refuses them."""
    as_text: set[int] = set()
    unable = ("stat", "open", "unlink", "remove", "mkdir", "rmdir", "link", "symlink", "readlink", "rename")

    def plain(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, follow_symlinks: bool = True, **named: Any) -> Any:
            if any(named.pop(name, None) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd")):
                raise NotImplementedError("dir_fd unavailable on this platform")
            if not follow_symlinks and function.__name__ != "stat":
                raise NotImplementedError("follow_symlinks unavailable on this platform")
            return function(*arguments, **named, **({} if follow_symlinks else {"follow_symlinks": False}))

        return called

    def no_descriptor(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(place: Any, *arguments: Any, **named: Any) -> Any:
            if isinstance(place, int):
                raise TypeError("path should be string, bytes or os.PathLike, not int")
            return function(place, *arguments, **named)

        return called

    def open_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: None = None) -> int:
        if dir_fd is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if os.path.isdir(path):  # noqa: PTH112
            raise refuse(errno.EACCES, path)
        handle = os.open(path, flags & ~O_BINARY, mode)
        as_text.discard(handle)
        if not flags & O_BINARY:
            as_text.add(handle)
        return handle

    def write(handle: int, data: Any) -> int:
        assert handle not in as_text, "every \\n would become \\r\\n"
        return os.write(handle, data)

    return {
        **{name: plain(getattr(os, name)) for name in unable},
        **{name: no_descriptor(getattr(os, name)) for name in ("listdir", "utime", "chmod", "scandir")},
        "open": open_file,
        "write": write,
        "O_BINARY": O_BINARY,
        "supports_dir_fd": set(),
        "supports_effective_ids": set(),
        "supports_follow_symlinks": {os.stat},
    }


def lock_bytes(handle: int, mode: int, count: int) -> None:
    """`msvcrt.locking`: from the position on; another descriptor is refused, in this process too."""
    import fcntl

    start = os.lseek(handle, 0, os.SEEK_CUR)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, start, count, 0))
    except BlockingIOError as e:
        raise refuse(errno.EACCES) from e


def is_in_use(path: Any) -> bool:
    """Return whether this process has the file open or mapped, according to the kernel."""
    try:
        wanted = os.lstat(path)
    except OSError:
        return False
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            found = os.fstat(int(name))
        except OSError:
            continue
        if os.path.samestat(found, wanted) and stat.S_ISREG(found.st_mode):
            return True
    with REAL_OPEN("/proc/self/maps", encoding="utf-8") as lines:
        return any(line.split()[4] == str(wanted.st_ino) and wanted.st_size for line in lines)


def guard_open_files() -> None:
    def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*paths: Any, **named: Any) -> Any:
            asked_by = sys._getframe(1).f_globals.get("__name__", "")
            if asked_by not in ("tempfile", "shutil"):  # which know the system they are on
                for path in paths:
                    if is_in_use(path):
                        raise refuse(errno.EACCES, path)
                is_another = function.__name__ == "rename" and os.fspath(paths[0]) != os.fspath(paths[1])
                if is_another and os.path.lexists(paths[1]):
                    raise refuse(errno.EEXIST, paths[0])
            return function(*paths, **named)

        called.__name__ = function.__name__
        return called

    for name in ("rename", "replace", "unlink", "remove"):
        setattr(os, name, guarded(getattr(os, name)))


REAL_OPEN = open


def hide_linux_files() -> None:
    def opened(file: Any, *arguments: Any, **named: Any) -> Any:
        asked_by = sys._getframe(1).f_globals.get("__name__", "")
        if not isinstance(file, int) and not asked_by.startswith(("psutil", "coverage", "tempfile")):
            place = os.fsdecode(file)
            if place.startswith(("/proc/", "/sys/")):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
            if SYSTEM == "win32" and os.path.isdir(place):  # noqa: PTH112
                raise refuse(errno.EACCES, place)
        return REAL_OPEN(file, *arguments, **named)

    builtins.open = io.open = opened  # type: ignore[assignment]


def install() -> None:
    import psutil  # noqa: F401 - it is made for each system, and would look which one this is

    if SYSTEM == "win32":
        guard_open_files()
        warnings.filterwarnings("ignore", category=EncodingWarning)  # of other packages
        warnings.filterwarnings("error", category=EncodingWarning, module="crnr_cli")
    others = of_macos() if SYSTEM == "darwin" else of_windows()
    others["sys"] = Imitated(sys, set(), {"platform": SYSTEM})
    hide_linux_files()
    real_import = builtins.__import__

    def imported(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        by = (globals or {}).get("__package__") or (globals or {}).get("__name__") or ""
        if level == 0 and name in others and by.split(".")[0] == "crnr_cli":
            found = others[name]
            if found is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return found
        return real_import(name, globals, locals, fromlist, level)

    builtins.__import__ = imported  # type: ignore[assignment]


if SYSTEM:
    install()
