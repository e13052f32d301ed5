"""Large arrays of a gallery are mapped from its file, and checked block by block."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest

from crnr_cli.arrays import Stamp, to_dense
from crnr_cli.errors import GalleryError
from crnr_cli.gallery import hdf5_contents
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import LazyStamps, LazyTexts
from crnr_cli.gallery.hdf5_contents import block_digests
from helpers.runner import Runner

BLOCK = 64


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (hdf5_contents, hdf5_contents):
        monkeypatch.setattr(module, "BLOCK", BLOCK)


@pytest.fixture
def path(crnr: Runner) -> Path:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 6
    values = rng.normal(size=(6, 10))[labels] + 0.3 * rng.normal(size=(60, 10))
    np.savez("features.npz", features=values, labels=labels)
    crnr("build", "features.npz", "--neighbors", 7, "-o", "gallery.h5")
    return Path("gallery.h5")


@pytest.mark.parametrize("n_bytes", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK, 1000])
@pytest.mark.parametrize("at_once", [BLOCK, 3 * BLOCK, 2**20])
def test_a_digest_per_block(monkeypatch: pytest.MonkeyPatch, n_bytes: int, at_once: int) -> None:
    monkeypatch.setattr(hdf5_contents, "_AT_ONCE", at_once)
    array = np.random.default_rng(0).integers(0, 256, n_bytes).astype(np.uint8)
    data = array.tobytes()
    expected = [hashlib.sha256(data[i : i + BLOCK]).digest() for i in range(0, len(data), BLOCK)]
    assert [row.tobytes() for row in block_digests(array)] == expected


def test_checksum_of_a_gallery_with_blocks_matches_the_documentation(path: Path) -> None:
    """Computed here as docs/reference/gallery-format.md describes it, with nothing but hashlib and h5py."""
    digest = hashlib.sha256()
    with h5py.File(path) as file:
        groups = {"/": file} | {name: item for name, item in file.items() if isinstance(item, h5py.Group)}
        for group in sorted(groups):
            for key in sorted(groups[group].attrs):
                value = np.asarray(groups[group].attrs[key])
                if (group, key) != ("/", "sha256"):
                    head = f"{group}@{key}\0{value.dtype.str}\0{value.shape}\0"
                    digest.update(head.encode() + value.tobytes())
        datasets: dict[str, Any] = {}
        file.visititems(
            lambda name, item: datasets.update({name: item[()]}) if hasattr(item, "shape") else None
        )
        stored = {name: array for name, array in datasets.items() if name.startswith("blocks/")}
        for name in sorted(set(datasets) - set(stored)):
            data = datasets[name].tobytes()
            found = [hashlib.sha256(data[i : i + BLOCK]).digest() for i in range(0, len(data), BLOCK)]
            digest.update(f"{name}\0{datasets[name].dtype.str}\0{datasets[name].shape}\0".encode())
            digest.update(b"".join(found))
            if len(data) > BLOCK:
                assert stored.pop(f"blocks/{name.replace('/', '.')}").tobytes() == b"".join(found)
        assert not stored
        assert file.attrs["sha256"] == digest.hexdigest().encode()
        assert file.attrs["version"] == 4


def test_large_arrays_are_mapped_and_read_only(path: Path) -> None:
    gallery = load_gallery(path)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(gallery.samples.vectors, file["samples/vectors"][()])
    assert isinstance(gallery.samples.vectors.base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        gallery.samples.vectors[0] = 0


def damage_at(path: Path, name: str, place: int) -> None:
    with h5py.File(path) as file:
        where = file[name].id.get_offset() + place
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("place", [0, BLOCK, 17 * BLOCK + 5, -1])
@pytest.mark.parametrize("name", ["samples/vectors", "samples/names", "samples/sha256", "samples/mtime_ns"])
def test_a_damaged_block_is_found(path: Path, name: str, place: int) -> None:
    with h5py.File(path) as file:
        size = file[name].nbytes
    damage_at(path, name, place % size)
    with pytest.raises(GalleryError, match=r"damaged \(the checksum does not match\)"):
        load_gallery(path)


def altered_digest(file: h5py.File) -> None:
    file["blocks/samples.vectors"][0, 0] ^= 1


def shorter_digests(file: h5py.File) -> None:
    digests = file["blocks/samples.vectors"][()]
    del file["blocks/samples.vectors"]
    file["blocks/samples.vectors"] = digests[:-1]


def digests_as_numbers(file: h5py.File) -> None:
    digests = file["blocks/samples.vectors"][()].astype(np.float64)
    del file["blocks/samples.vectors"]
    file["blocks/samples.vectors"] = digests


@pytest.mark.parametrize("alter", [altered_digest, shorter_digests, digests_as_numbers])
@pytest.mark.parametrize("is_rehashed", [False, True])
def test_checksums_of_blocks_that_are_wrong(
    path: Path, alter: Callable[[h5py.File], None], is_rehashed: bool
) -> None:
    with h5py.File(path, "r+") as file:
        alter(file)
    if is_rehashed:
        actual = hdf5_contents.read_content(path).compute_sha256()
        with h5py.File(path, "r+") as file:
            file.attrs["sha256"] = np.bytes_(actual)
    with pytest.raises(GalleryError, match=r"^gallery\.h5: "):
        load_gallery(path)


def test_a_large_array_without_checksums_of_its_blocks_is_still_checked(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        del file["blocks/samples.vectors"]
    assert len(load_gallery(path).names) == 60
    damage_at(path, "samples/vectors", 3)
    with pytest.raises(GalleryError, match="damaged"):
        load_gallery(path)


def test_earlier_versions_have_no_blocks(crnr: Runner, path: Path) -> None:
    crnr("build", "features.npz", "-o", "all.h5")
    with h5py.File("all.h5") as file:
        assert "blocks" not in file
        assert file.attrs["version"] == 1
    assert load_gallery(Path("all.h5")).samples.vectors.base is None


def test_a_file_that_was_cut(path: Path) -> None:
    data = path.read_bytes()
    for size in (len(data) - 1, len(data) // 2, 3000):
        path.write_bytes(data[:size])
        with pytest.raises(GalleryError, match=r"^gallery\.h5: "):
            load_gallery(path)


def test_mapped_vectors_give_the_residuals_of_vectors_in_memory(path: Path) -> None:
    mapped = load_gallery(path)
    copied = replace(mapped, samples=replace(mapped.samples, vectors=mapped.samples.vectors.copy()))
    queries = mapped.samples.vectors[:5]
    np.testing.assert_array_equal(to_dense(mapped.residuals(queries)), to_dense(copied.residuals(queries)))


def test_texts_are_decoded_when_they_are_looked_at() -> None:
    names = ["a", "caf\udce9", "Ö", "last"]
    column = LazyTexts(np.array([name.encode("utf-8", "surrogateescape") for name in names]))
    assert column == names
    assert [column[i] for i in (0, 2, -1)] == ["a", "Ö", "last"]
    assert column[1:3] == names[1:3]
    assert list(reversed(column)) == names[::-1]
    assert column != [*names, "more"]
    assert (column.index("Ö"), "a" in column, "b" in column) == (2, True, False)
    for place in (4, -5):
        with pytest.raises(IndexError):
            column[place]
    with pytest.raises(ValueError, match="not text"):
        LazyTexts(np.arange(3))


def test_stamps_are_pairs() -> None:
    column = LazyStamps(np.array([1, 2]), np.array([10, 20]))
    assert column == [Stamp(1, 10), Stamp(2, 20)]
    assert column[-1].mtime_ns == 20
    with pytest.raises(ValueError, match="different sizes"):
        LazyStamps(np.array([1, 2]), np.array([10]))


def test_arrays_larger_than_a_block_have_checksums_of_blocks() -> None:
    arrays = {name: np.zeros(size, np.uint8) for name, size in (("a/small", BLOCK), ("a/large", BLOCK + 1))}
    content = hdf5_contents.HDF5Contents(arrays, {"/": {"version": 4}}).with_blocks()
    assert set(content.blocks) == {"a/large"}
    assert set(content.all_arrays()) == {"a/small", "a/large", "blocks/a.large"}
    assert not content.has_damaged_blocks()
    wider = replace(content, blocks={"a/large": content.blocks["a/large"].astype(np.int64)})
    assert wider.has_damaged_blocks()
    assert not replace(content, attributes={"/": {"version": 3}}).has_blocks


@pytest.mark.parametrize(("offset", "is_refused"), [(None, True), (0, False), (4, False), (5, True)])
def test_an_array_outside_of_the_file_is_not_mapped(
    tmp_path: Path, offset: int | None, is_refused: bool
) -> None:
    (tmp_path / "x").write_bytes(bytes(range(12)))
    dataset = SimpleNamespace(
        id=SimpleNamespace(get_offset=lambda: offset),
        nbytes=8,
        name="/a/b",
        dtype=np.dtype(np.uint8),
        shape=(4, 2),
    )
    if is_refused:
        with pytest.raises(GalleryError, match=r"^a/b lies outside of the file$"):
            hdf5_contents._map_array(tmp_path / "x", dataset)
        return
    assert offset is not None
    found = hdf5_contents._map_array(tmp_path / "x", dataset)
    assert found.ravel().tolist() == list(range(offset, offset + 8))
    assert not found.flags.writeable
