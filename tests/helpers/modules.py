"""The modules of the package, for the rules about the code itself; a rule lists all that break it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import crnr_cli

PACKAGE = Path(crnr_cli.__file__).parent


@dataclass(frozen=True)
class Module:
    """A file of the package, which is read and parsed once."""

    path: Path

    @property
    def name(self) -> str:
        """The path within the package."""
        return self.path.relative_to(PACKAGE).as_posix()

    @property
    def room(self) -> str:
        """The folder, or the name of a module of the root."""
        return self.path.relative_to(PACKAGE).parts[0].removesuffix(".py")

    @property
    def dotted(self) -> str:
        """The name by which it is imported."""
        parts = self.path.relative_to(PACKAGE.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse(self.text)))

    @property
    def functions(self) -> list[ast.FunctionDef]:
        return [node for node in self.nodes if isinstance(node, ast.FunctionDef)]

    @cached_property
    def texts(self) -> list[str]:
        """The constants that are text, without docstrings."""
        unread = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        return [
            node.value
            for node in self.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unread
        ]

    @cached_property
    def imported(self) -> set[str]:
        """The dotted names of all that is imported: modules, and what is taken from them."""
        return set(self._imported())

    def _imported(self) -> Iterator[str]:
        for node in self.nodes:
            match node:
                case ast.Import(names=names):
                    yield from (alias.name for alias in names)
                case ast.ImportFrom(module=module, names=names, level=level):
                    assert level == 0, f"{self.name}: a relative import"
                    yield str(module)
                    yield from (f"{module}.{alias.name}" for alias in names)


MODULES = [Module(path) for path in sorted(PACKAGE.rglob("*.py"))]


def importers(module: Module) -> list[str]:
    """Return the names of the modules of the package that import this one."""
    return [other.name for other in MODULES if other is not module and module.dotted in other.imported]


def refuse(found: Mapping[str, object]) -> None:
    """Fail if something is found, with a line for each."""
    assert not found, "\n" + "\n".join(f"{name}: {what}" for name, what in found.items())


def refuse_where(check: Callable[[Module], object]) -> None:
    """Fail if the check finds something in any module; it returns what it finds."""
    refuse({module.name: found for module in MODULES if (found := check(module))})
