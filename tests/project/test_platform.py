"""Names that not every system has are used in crnr_cli/system alone, each name in one file there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from helpers.modules import PACKAGE, Module, refuse, refuse_where

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
    "O_DIRECTORY": "descriptors.py",
    "O_PATH": "folders.py",
    "dir_fd": "folders.py",
    "dst_dir_fd": "folders.py",
    "fchdir": "folders.py",
    "pathconf": "files.py",
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
    "/dev/std": "files.py",
    "/dev/fd/": "files.py",
    "/proc/": "files.py",  # with the descriptors of a process
}
# Where it matters which system this is; the folder of a user's files is a matter of custom.
ASKING = {PACKAGE / "models" / "catalog.py", *(PACKAGE / "system").glob("*.py")}


def names(module: Module) -> Iterator[str]:
    """Yield all names in a module, also those that it looks up as text, such as getattr(os, "O_PATH")."""
    yield from module.texts
    for node in module.nodes:
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Import(names=found):
                yield from (part for alias in found for part in alias.name.split("."))
            case ast.ImportFrom(module=imported, names=found):
                yield from (imported or "").split(".")
                yield from (alias.name for alias in found)


def test_each_name_has_one_place() -> None:
    def misplaced(module: Module) -> set[str]:
        used = set(names(module))
        elsewhere = {name for name in used & PLACES.keys() if module.name != f"system/{PLACES[name]}"}
        return elsewhere | used & NOWHERE

    refuse_where(misplaced)


def test_each_file_of_linux_has_one_place() -> None:
    def misplaced(module: Module) -> list[str]:
        here = tuple(start for start, place in PATHS.items() if module.name == f"system/{place}")
        found = [text for text in module.texts if text.lstrip("/").startswith(("proc/", "sys/", "dev/"))]
        return [text for text in found if not text.startswith(here)]

    refuse_where(misplaced)


def test_only_one_package_tests_which_system_it_is() -> None:
    def asked(module: Module) -> set[str]:
        found = {
            f"{node.value.id}.{node.attr}"
            for node in module.nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        } & {"sys.platform", "os.name", "platform.system"}
        return found - ({"sys.platform"} if module.path in ASKING else set())

    refuse_where(asked)


def test_every_place_is_needed() -> None:
    rooms = {place: Module(PACKAGE / "system" / place) for place in {*PLACES.values(), *PATHS.values()}}
    refuse({name: place for name, place in PLACES.items() if name not in set(names(rooms[place]))})
    refuse(
        {
            start: place
            for start, place in PATHS.items()
            if not any(text.startswith(start) for text in rooms[place].texts)
        }
    )
