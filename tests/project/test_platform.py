"""What not every system has is used in crnr_cli/system, each name in one file there, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import crnr_cli

PACKAGE = Path(crnr_cli.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# Modules, functions, constants and parameters that Linux, macOS or Windows does not have, and their place.
PLACES = {
    # modules
    "fcntl": "descriptors.py",
    "msvcrt": "descriptors.py",
    "resource": "child.py",
    "psutil": "other_systems.py",
    # open files
    "F_FULLFSYNC": "descriptors.py",
    "O_BINARY": "descriptors.py",
    "O_NOFOLLOW": "descriptors.py",
    "O_NONBLOCK": "descriptors.py",
    "copy_file_range": "descriptors.py",
    "fchmod": "descriptors.py",
    "fchown": "descriptors.py",
    "flock": "descriptors.py",
    "getxattr": "descriptors.py",
    "listxattr": "descriptors.py",
    "pwrite": "descriptors.py",
    "set_blocking": "descriptors.py",
    "setxattr": "descriptors.py",
    # folders
    "IO_REPARSE_TAG_MOUNT_POINT": "folders.py",
    "O_DIRECTORY": "folders.py",
    "O_PATH": "folders.py",
    "dir_fd": "folders.py",
    "dst_dir_fd": "folders.py",
    "fchdir": "folders.py",
    "pathconf": "folders.py",
    "renameat2": "folders.py",
    "renameatx_np": "folders.py",
    "src_dir_fd": "folders.py",
    "st_reparse_tag": "folders.py",
    # signals
    "ITIMER_REAL": "signals.py",
    "SIGALRM": "signals.py",
    "SIGBREAK": "signals.py",
    "SIGPIPE": "signals.py",
    "setitimer": "signals.py",
    # limits, cores and memory
    "RLIMIT_AS": "child.py",
    "RLIMIT_CPU": "child.py",
    "SIGXCPU": "child.py",
    "cpu_affinity": "other_systems.py",
    "getrlimit": "child.py",
    "getrusage": "child.py",
    "sched_getaffinity": "cores.py",
    "setrlimit": "child.py",
    "sysconf": "memory.py",
}
# Those that nothing here needs.
NOWHERE = {
    "CREATE_NEW_PROCESS_GROUP", "O_CLOEXEC", "O_NOINHERIT", "O_SYNC", "O_TEMPORARY", "O_TMPFILE", "SIGCHLD",
    "SIGHUP", "SIGKILL", "SIGQUIT", "SIGSTOP", "SIGUSR1", "WinDLL", "chown", "fchownat", "fdatasync",
    "fork", "forkpty", "getegid", "geteuid", "getgid", "getuid", "grp", "killpg", "lchown", "lockf",
    "mkfifo", "mknod", "openpty", "pass_fds", "pipe2", "posix", "posix_fadvise", "posix_spawn", "pread",
    "preexec_fn", "pthread_kill", "pty", "pwd", "select", "selectors", "sendfile", "setsid", "sigwait",
    "start_new_session", "startfile", "statvfs", "sync_file_range", "termios", "tty", "uname", "wait3",
    "waitid", "waitpid", "windll", "winreg",
}  # fmt: skip
# Files of Linux, by how their names begin in the source.
PATHS = {
    "/sys/fs/cgroup/cpu.max": "cores.py",
    "proc/": "memory.py",
    "sys/fs/cgroup": "memory.py",
    "/dev/std": "outputs.py",
    "/dev/fd/": "outputs.py",
    "/proc/self/fd/": "outputs.py",
}
# Where it matters which system this is; the folder of a user's files is a matter of custom.
ASKING = {PACKAGE / "models" / "folder.py", *(PACKAGE / "system").glob("*.py")}

each_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))


def docstrings(tree: ast.Module) -> set[int]:
    """The nodes that are texts by themselves, which nothing reads."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def texts(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    unread = docstrings(tree)
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unread
    ]


def names(path: Path) -> Iterator[str]:
    """All names in a module, also those that it looks up as text, such as getattr(os, "O_PATH")."""
    yield from texts(path)
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Import(names=found):
                yield from (part for alias in found for part in alias.name.split("."))
            case ast.ImportFrom(module=module, names=found):
                yield from (module or "").split(".")
                yield from (alias.name for alias in found)


@each_module
def test_each_name_has_one_place(path: Path) -> None:
    used = set(names(path))
    elsewhere = {name for name in used & PLACES.keys() if path != PACKAGE / "system" / PLACES[name]}
    assert elsewhere == set()
    assert used & NOWHERE == set()


@each_module
def test_each_file_of_linux_has_one_place(path: Path) -> None:
    found = [text for text in texts(path) if text.lstrip("/").startswith(("proc/", "sys/", "dev/"))]
    unknown = [
        text
        for text in found
        if not any(
            text.startswith(start) and path == PACKAGE / "system" / place for start, place in PATHS.items()
        )
    ]
    assert unknown == []


@each_module
def test_which_system_it_is_is_asked_in_one_room(path: Path) -> None:
    tree = ast.parse(path.read_text())
    asked = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    } & {"sys.platform", "os.name", "platform.system"}
    assert asked <= ({"sys.platform"} if path in ASKING else set())


def test_every_place_is_needed() -> None:
    for name, place in PLACES.items():
        assert name in set(names(PACKAGE / "system" / place)), name
    for start, place in PATHS.items():
        assert any(text.startswith(start) for text in texts(PACKAGE / "system" / place)), start
