"""List pictures on a cluster: workers list the folders below those that the user named."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crnr_cli.cluster.dask import Cluster
from crnr_cli.cluster.parts import refuse_missing
from crnr_cli.sources.walk import Folder, Sublisting, sublisting


@dataclass(frozen=True)
class Root:
    """A folder that the user named."""

    path: str
    base: str  # the folder that relative paths are relative to


@dataclass(frozen=True)
class Group:
    """Folders for one task: in a class of its own, as Dask would look for tasks in a list."""

    folders: Sequence[Folder]


def list_on(cluster: Cluster, root: str, groups: Iterable[Sequence[Folder]]) -> Iterator[Sublisting]:
    """List groups of the folders of a folder that the user named, in their order."""
    for _, found in cluster.in_order(list_folders, Root(root, str(Path.cwd())), map(Group, groups)):
        yield found


def list_folders(root: Root, group: Group) -> Sublisting:
    """List some folders of the root, on a worker."""
    refuse_missing([Path(os.path.join(root.base, root.path))])  # noqa: PTH118
    return sublisting(root.base, root.path, group.folders)
