"""Damage to files that goes deeper than flipped bits: most of it gets past signatures, lengths and checksums.

Each function takes the bytes of a sound file and a source of chance, and returns the bytes of a damaged one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

import h5py
import numpy as np

Damage = Callable[[bytes, Random], bytes]

EXTREMES = (0, 1, 2, 3, 127, 128, 255, 256, 32767, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)


def bytes_changed(data: bytes, chance: Random) -> bytes:
    """Bits flipped, numbers made extreme, pieces cut, copied or inserted."""
    changed = bytearray(data or b"\0")
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        where = chance.randrange(len(changed))
        match chance.randrange(6):
            case 0:
                changed[where] ^= 1 << chance.randrange(8)
            case 1:
                size = chance.choice((1, 2, 4, 8))
                changed[where : where + size] = chance.choice((b"\xff", b"\0", b"\x7f", b"\x80")) * size
            case 2:
                size = chance.choice((1, 2, 4, 8))
                number = chance.choice(EXTREMES) % 256**size
                order = chance.choice(("little", "big"))
                changed[where : where + size] = number.to_bytes(size, order)  # type: ignore[arg-type]
            case 3:
                source, size = chance.randrange(len(changed)), chance.randrange(1, 100)
                changed[where : where + size] = changed[source : source + size]
            case 4:
                changed[where:where] = chance.randbytes(chance.randrange(1, 30))
            case _:
                del changed[where : where + chance.choice((1, 2, 4, 30, len(changed)))]
                changed = changed or bytearray(1)
    return bytes(changed)


def zip_changed(data: bytes, chance: Random) -> bytes:
    """Return an npz with a member changed before it is packed, with the right checksum."""
    members = dict(_members(data))
    name = chance.choice(list(members))
    match chance.randrange(8):
        case 0:
            members[chance.choice(("features.npy", "labels.npy", "paths.npy", "../x.npy"))] = members.pop(
                name
            )
        case 1:
            other = chance.choice(list(members))
            members[name], members[other] = members[other], members[name]
        case 2:
            members[name] = bytes_changed(members[name], chance)
        case 3:
            members[name] = members[name][:10] + bytes_changed(members[name][10:], chance)
        case _:
            members[name] = npy_changed(members[name], chance)
    packed = io.BytesIO()
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(packed, "w", method, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return packed.getvalue()


@lru_cache(maxsize=4)
def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


_NPY_HEADERS = (
    (
        r"'descr': '[^']*'",
        "'descr': '%s'",
        ("<f8", "<f4", ">f2", "|u1", "<U9", "|S0", "|O", "<M8[s]", "<f16"),
    ),
    (
        r"'descr': '[^']*'",
        "'descr': %s",
        ("[('a', '<f8')]", "'<f8', 'x': 1", "('<f8', (3,))", "None", "'|V5'"),
    ),
    (r"'fortran_order': \w+", "'fortran_order': %s", ("True", "False", "2", "None")),
    (
        r"'shape': \([^)]*\)",
        "'shape': %s",
        ("(12, 5)", "(5, 12)", "()", "(0, 5)", "(60,)", "(-1, 5)", "(12, True)"),
    ),
    (
        r"'shape': \([^)]*\)",
        "'shape': %s",
        ("(12, 0)", "(1, 2, 30)", f"({2**62}, 5)", "12", "(12.0, 5)", "(3, 4, 5)"),
    ),
)


def npy_changed(member: bytes, chance: Random) -> bytes:
    """Return an array with another header of the right length; sometimes its values fit it."""
    length = int.from_bytes(member[8:10], "little")
    header, values = member[10 : 10 + length].decode("latin-1"), member[10 + length :]
    for _ in range(chance.choice((1, 1, 2))):
        pattern, form, choices = chance.choice(_NPY_HEADERS)
        new = form % chance.choice(choices)
        header = re.sub(pattern, lambda _, new=new: new, header)  # type: ignore[misc]
    if chance.random() < 0.3:
        values = bytes_changed(values, chance)
    text = header.encode("latin-1")
    return member[:8] + len(text).to_bytes(2, "little") + text + values


def png_changed(data: bytes, chance: Random) -> bytes:
    """Return a PNG with a chunk or unpacked pixels changed, and with the right checksums."""
    chunks = list(_chunks(data))
    at = chance.randrange(len(chunks))
    kind, content = chunks[at]
    match chance.randrange(6):
        case 0:
            chunks.insert(chance.randrange(len(chunks)), chunks[at])
        case 1 if len(chunks) > 1:
            del chunks[at]
        case 2:
            extra = chance.choice((b"tRNS", b"eXIf", b"iCCP", b"gAMA", b"zTXt", b"acTL", b"fcTL", b"PLTE"))
            chunks.insert(
                chance.randrange(1, len(chunks) + 1), (extra, chance.randbytes(chance.randrange(40)))
            )
        case 3:
            chunks[0] = (b"IHDR", bytes_changed(chunks[0][1], chance))
        case _ if kind == b"IDAT":
            chunks[at] = (kind, zlib.compress(bytes_changed(zlib.decompress(content), chance), 1))
        case _:
            chunks[at] = (kind, bytes_changed(content, chance))
    return data[:8] + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


@lru_cache(maxsize=4)
def _chunks(data: bytes) -> tuple[tuple[bytes, bytes], ...]:
    found, at = [], 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return tuple(found)


def boxes_changed(data: bytes, chance: Random) -> bytes:
    """Return a HEIC or AVIF with a box changed, and with the right lengths around it."""
    boxes = _boxes(data)
    for _ in range(chance.choice((1, 1, 2))):
        inside = boxes
        while True:  # down to some depth
            at = chance.randrange(len(inside))
            kind, head, content = inside[at]
            if isinstance(content, bytes) or not content or chance.random() < 0.2:
                break
            inside = content
        match chance.randrange(6):
            case 0:
                inside.insert(chance.randrange(len(inside) + 1), inside[at])
            case 1 if len(inside) > 1:
                del inside[at]
            case 2:
                kinds = (
                    b"irot",
                    b"imir",
                    b"clap",
                    b"ispe",
                    b"av1C",
                    b"hvcC",
                    b"iref",
                    b"grid",
                    b"idat",
                    b"auxC",
                )
                new = (chance.choice(kinds), b"", chance.randbytes(chance.randrange(40)))
                inside.insert(chance.randrange(len(inside) + 1), new)
            case 3 if isinstance(content, bytes) and len(content) >= 4:  # a number, at its usual place
                where, number = 4 * chance.randrange(len(content) // 4), chance.choice(EXTREMES) % 2**32
                content = content[:where] + number.to_bytes(4) + content[where + 4 :]
                inside[at] = (kind, head, content)
            case _ if isinstance(content, bytes):
                inside[at] = (kind, head, bytes_changed(content, chance))
            case _:
                inside[at] = (kind, chance.randbytes(len(head)), content)
    return _packed(boxes)


def _boxes(data: bytes) -> list[Any]:
    """Return the kind of each box, the bytes before the boxes in it, and these boxes or its content."""
    boxes, at = [], 0
    while at < len(data):
        length, kind = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8]
        content = data[at + 8 : at + length]
        head = {b"meta": 4, b"iprp": 0, b"ipco": 0, b"iref": 4}.get(kind)
        boxes.append((kind, b"", content) if head is None else (kind, content[:head], _boxes(content[head:])))
        at += length
    return boxes


def _packed(boxes: list[Any]) -> bytes:
    packed = b""
    for kind, head, content in boxes:
        inner = head + (content if isinstance(content, bytes) else _packed(content))
        packed += (8 + len(inner)).to_bytes(4) + kind + inner
    return packed


def tiff_changed(data: bytes, chance: Random) -> bytes:
    """Return a TIFF with an entry of its directory changed."""
    changed = bytearray(data)
    (directory,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, directory)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = directory + 2 + 12 * chance.randrange(count)
        tag, kind, n, value = struct.unpack_from("<HHII", data, at)
        match chance.randrange(4):
            case 0:
                tag = chance.choice(
                    (256, 257, 258, 259, 262, 273, 274, 277, 278, 279, 284, 317, 322, 338, 339)
                )
            case 1:
                kind = chance.randrange(20)
            case 2:
                n = chance.choice((*EXTREMES[:-1], n + 1))
            case _:
                value = chance.choice((*EXTREMES[:-1], value + 1, len(data), directory))
        struct.pack_into("<HHII", changed, at, tag, kind, n, value % 2**32)
    return bytes(changed)


def mat_changed(data: bytes, chance: Random) -> bytes:
    """Return a MATLAB file with an element changed, before it is packed if it is packed."""
    elements, at = [], 128
    while at + 8 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        elements.append([kind, data[at + 8 : at + 8 + length]])
        at += 8 + length
    chosen = chance.choice(elements)
    if chosen[0] == 15:
        inner = zlib.decompress(chosen[1])
        chosen[1] = zlib.compress(inner[:8] + _numbers_changed(inner[8:], chance), 1)
    else:
        chosen[1] = _numbers_changed(chosen[1], chance)
    return data[:128] + b"".join(
        struct.pack("<II", kind, len(content)) + content for kind, content in elements
    )


def _numbers_changed(data: bytes, chance: Random) -> bytes:
    """Return numbers of four bytes, such as types, lengths and dimensions, changed in place; or any bytes."""
    if chance.random() < 0.3:
        return bytes_changed(data, chance)
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = 4 * chance.randrange(max(1, min(len(data), 400) // 4))
        number = chance.choice((*range(20), *EXTREMES[:-1], len(data)))
        changed[at : at + 4] = struct.pack("<I", number)
    return bytes(changed)


_CELLS = (
    "",
    "nan",
    "inf",
    "-1e999",
    "1e5000",
    "0x1p3",
    "1_000",
    "\u0661",
    '"',
    '""',
    "\0",
    "a\nb",
    "ok",
    "unknown",
    "é" * 50,
)


def csv_changed(data: bytes, chance: Random) -> bytes:
    """Return a CSV with fields, rows or columns changed."""
    rows = [line.split(b",") for line in data.split(b"\n")]
    for _ in range(chance.choice((1, 1, 2, 6))):
        row = chance.choice(rows)
        at = chance.randrange(len(row))
        match chance.randrange(8):
            case 0:
                rows.insert(chance.randrange(len(rows)), list(row))
            case 1:
                del row[at:]
                row.append(b"")
            case 2:
                row.insert(at, chance.choice(_CELLS).encode())
            case 3:
                for each in rows:  # a column
                    del each[min(at, len(each) - 1)]
                    each.extend([] if each else [b""])
            case 4:
                row[at] = bytes_changed(row[at], chance)
            case 5:
                rows[0] = [*rows[0], chance.choice((b"truth", b"label", b"margin", b"status", b"residual:a"))]
            case _:
                row[at] = chance.choice(_CELLS).encode()
    ends = chance.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r", b"\n\n"))
    return chance.choice((b"", b"", b"", b"\xef\xbb\xbf", b"\xff\xfe")) + ends.join(map(b",".join, rows))


_JSON_VALUES = (
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "NaN",
    str(2**70),
    '""',
    '"x"',
    "[]",
    "{}",
    '{"ok": -5}',
    "1.5",
)


_XML = (
    b"<!DOCTYPE a [<!ENTITY b 'bb'>]>",
    b"<?xml version='1.0' encoding='utf-16'?>",
    b"<a>" * 2000,
    b"<![CDATA[<rdf:li>]]>",
    b"&#0;",
    b"&b;",
    b"<rdf:Bag/>",
    b"<rdf:li/>",
    b"<rdf:Description/>",
    b"<dc:subject xmlns:dc='http://purl.org/dc/elements/1.1/'/>",
    b"<!-- <rdf:li>x</rdf:li> -->",
    b"\xff\xfe",
    b" " * 5000,
)


def xml_changed(data: bytes, chance: Random) -> bytes:
    """Return XML with tags removed, repeated, exchanged or nested, and with names that mean something."""
    parts = re.split(rb"(<[^>]*>)", data)
    for _ in range(chance.choice((1, 1, 2, 6))):
        at, other = chance.randrange(len(parts)), chance.randrange(len(parts))
        match chance.randrange(6):
            case 0:
                del parts[at]
            case 1:
                parts.insert(at, parts[other])
            case 2:
                parts[at], parts[other] = parts[other], parts[at]
            case 3:
                parts[at] = bytes_changed(parts[at], chance)
            case 4:
                parts[at] = parts[at].replace(b">", b"/>")
            case _:
                parts.insert(at, chance.choice(_XML))
    return b"".join(parts)


def journal_changed(data: bytes, chance: Random) -> bytes:
    """Lines of JSON with values, keys or whole lines changed."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    match chance.randrange(6):
        case 0:
            lines.insert(at, lines[chance.randrange(len(lines))])
        case 1:
            del lines[at]
        case 2:
            lines[at] = bytes_changed(lines[at], chance)
        case 3:
            lines[at] = chance.choice(
                (b"[" * 5000, b'{"a":' * 2000, b"1", b"[1]", b'{"size": 1}', b"9" * 5000)
            )
        case _:
            value = chance.choice(_JSON_VALUES)
            values = list(re.finditer(r': ("[^"]*"|[-\d.]+|\{[^}]*\})', lines[at].decode()))
            if values:
                found = chance.choice(values)
                line = lines[at].decode()
                lines[at] = (line[: found.start(1)] + value + line[found.end(1) :]).encode()
    return b"\n".join(lines)


def protobuf_changed(data: bytes, chance: Random) -> bytes:
    """Return a message, such as an ONNX model, with a field changed inside, and the right lengths."""
    return _encoded(_field_changed(_decoded(data), chance))


Field = tuple[int, int, Any]  # number, wire type, and value: a number, bytes, or a list of fields


def _decoded(data: bytes) -> list[Field]:
    """Return the fields of a message; ValueError if it is not a message."""
    found: list[Field] = []
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if not number:
            raise ValueError("not a message")
        if wire == 0:
            value, at = _varint(data, at)
            found.append((number, 0, value))
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError("not a message")
        if at + length > len(data):
            raise ValueError("not a message")
        content = data[at : at + length]
        at += length
        try:
            found.append((number, wire, _decoded(content) if wire == 2 and content else content))
        except ValueError:
            found.append((number, wire, content))
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("not a message")
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def _field_changed(fields: list[Field], chance: Random) -> list[Field]:
    fields = list(fields)
    at = chance.randrange(len(fields))
    number, wire, value = fields[at]
    if isinstance(value, list) and value and chance.random() < 0.9:
        fields[at] = (number, wire, _field_changed(value, chance))
        return fields
    match chance.randrange(5):
        case 0:
            del fields[at]
        case 1:
            fields.insert(at, fields[at])
        case 2:
            fields[at] = (chance.randrange(1, 30), wire, value)
        case _ if isinstance(value, int):
            fields[at] = (number, wire, chance.choice((*range(17), *EXTREMES, 2**64 - 1)))
        case _ if isinstance(value, bytes):
            changed = bytes_changed(value, chance)
            fields[at] = (number, wire, changed if wire == 2 else changed.ljust(8, b"\0")[: len(value)])
        case _:
            fields[at] = (number, wire, chance.randbytes(chance.randrange(10)))
    return fields


def _encoded(fields: list[Field]) -> bytes:
    parts = []
    for number, wire, value in fields:
        parts.append(_as_varint(number << 3 | wire))
        if isinstance(value, int):
            parts.append(_as_varint(value))
            continue
        content = _encoded(value) if isinstance(value, list) else value
        parts += [_as_varint(len(content))] * (wire == 2) + [content]
    return b"".join(parts)


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


# HDF5.


_UNWRITABLE = (TypeError, ValueError, OSError, RuntimeError, KeyError, AttributeError)  # of h5py


def hdf5_changed(data: bytes, chance: Random) -> bytes:
    """Return an HDF5 file with a dataset, an attribute or a link replaced."""
    with h5py.File(h5py.h5f.open_file_image(data, h5py.h5f.ACC_RDWR)) as file:
        _some_objects_changed(file, chance)
        file.flush()
        image: bytes = file.id.get_file_image()
    return image


def gallery_changed(data: bytes, chance: Random) -> bytes:
    """Return a gallery with something replaced, whose checksum is right all the same."""
    with h5py.File(h5py.h5f.open_file_image(data, h5py.h5f.ACC_RDWR)) as file:
        _some_objects_changed(file, chance)
        with contextlib.suppress(*_UNWRITABLE):  # an unreadable file has no checksum
            file.attrs["sha256"] = np.bytes_(gallery_checksum(file))
        file.flush()
        image: bytes = file.id.get_file_image()
    return image


def _some_objects_changed(file: h5py.File, chance: Random) -> None:
    for _ in range(chance.choice((1, 1, 2))):
        # If HDF5 fails to write, the file stays as it is.
        with contextlib.suppress(*_UNWRITABLE), np.errstate(all="ignore"):
            _object_changed(file, chance)


def gallery_checksum(file: h5py.File) -> str:
    """Return the documented checksum: over all attributes but this one, then all datasets."""
    attributes, datasets = [], []

    def visit(name: str, item: Any) -> None:
        attributes.append((name, item) if not isinstance(item, h5py.Dataset) else None)
        if isinstance(item, h5py.Dataset):
            datasets.append((name, item))

    file.visititems(visit)
    digest = hashlib.sha256()

    def add(path: str, value: Any) -> None:
        array = np.asarray(value)
        digest.update(f"{path}\0{array.dtype.str}\0{array.shape}\0".encode() + array.tobytes())

    for path, group in sorted([("/", file), *filter(None, attributes)], key=lambda pair: pair[0]):
        for key in sorted(group.attrs):
            if (path, key) != ("/", "sha256"):
                add(f"{path}@{key}", group.attrs[key])
    for path, dataset in sorted(datasets, key=lambda pair: pair[0]):
        add(path, dataset[()])
    return digest.hexdigest()


def _paths(file: h5py.File) -> list[str]:
    found: list[str] = []
    file.visit(found.append)
    return found


def _object_changed(file: h5py.File, chance: Random) -> None:
    paths = _paths(file)
    if chance.random() < 0.4 or not paths:
        holder = file[chance.choice(("/", "/", *paths))]
        if names := list(holder.attrs):
            _attribute_changed(holder, chance.choice(names), chance)
            return
    path = chance.choice(paths)
    if not isinstance(file[path], h5py.Dataset) or chance.random() < 0.1:
        _link_changed(file, path, chance)
    else:
        _dataset_changed(file, path, chance)


def _attribute_changed(holder: Any, key: str, chance: Random) -> None:
    was = holder.attrs[key]
    match chance.randrange(6):
        case 0:
            del holder.attrs[key]
        case 1:
            holder.attrs[key] = np.bytes_(
                bytes_changed(bytes(was), chance)[:200] if isinstance(was, bytes) else b"x"
            )
        case 2 if isinstance(was, np.number):
            number = chance.choice(
                (0, -1, 1e300, np.nan, np.inf, 2**31, 5e-324, -0.0, float(was) + 1, float(was) * 2)
            )
            holder.attrs[key] = (
                number if was.dtype.kind == "f" else int(np.nan_to_num(number, posinf=9.0) % 2**62)
            )
        case 3:
            holder.attrs[key] = chance.choice(("text", "", [1.0, 2.0], h5py.Empty("f8"), True, 1j))
        case 4:
            holder.attrs[chance.choice(("lam", "mu", "tol", "steps", "power", "MATLAB_empty", "x"))] = (
                chance.choice((1.0, 0, np.bytes_(b"pca"), np.bytes_(b"x y")))
            )
        case _:
            values: list[Any] = [
                np.bytes_(word) for word in (b"", b"crnr", b"nn", b"svm", b"cell", b"char", b"{}")
            ]
            holder.attrs[key] = chance.choice((*values, -1, 2.5, np.uint64(2**64 - 1), np.float16(3)))


def _link_changed(file: h5py.File, path: str, chance: Random) -> None:
    match chance.randrange(5):
        case 0:
            del file[path]
        case 1:
            del file[path]
            file[path] = chance.choice(
                (h5py.SoftLink("/"), h5py.ExternalLink("other.h5", "/"), h5py.SoftLink(path))
            )
        case 2:
            target = file[chance.choice(_paths(file))]
            file[f"{path}2" if isinstance(file[path], h5py.Dataset) else f"{path}/more"] = target
        case 3:
            file.move(path, chance.choice(("features", "labels", "paths", "x", "state/H", "samples/x")) + "_")
        case _:
            file.create_group(
                chance.choice(("a/b/c/d", "samples/x", "#refs#", "é")) + str(chance.randrange(9))
            )


_TYPES = ("<f8", "<f4", ">f8", "<f2", "<i4", ">i2", "|u1", "|S3", "<u8", "|b1", "<c8")


def _dataset_changed(file: h5py.File, path: str, chance: Random) -> None:
    values = file[path][()]
    options: dict[str, Any] = {}
    match chance.randrange(7):
        case 0:
            try:
                values = values.astype(chance.choice(_TYPES))
            except (TypeError, ValueError):
                values = np.zeros(values.shape, chance.choice(_TYPES))
        case 1:
            shape = chance.choice(
                ((0,), (1,), (3, 5), (12,), (12, 5, 1), (), (60, 1), (1, 60), values.shape[::-1])
            )
            values = np.resize(values, shape) if values.size else np.zeros(shape)
        case 2:
            values = np.array(
                chance.choice((values[:-1], np.concatenate([values, values]))) if values.ndim else values
            )
        case 3 if values.dtype.kind in "fiu" and values.size:
            extreme = chance.choice((np.nan, np.inf, -np.inf, 1e308, -1e38, 0.0, -1.0, 1e-320, 7.0))
            values = values.copy()
            values.flat[chance.randrange(values.size)] = np.array(extreme).astype(values.dtype)
        case 4 if values.size and values.dtype != object:
            content = bytearray(values.tobytes())
            for _ in range(chance.choice((1, 3))):
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            values = np.frombuffer(bytes(content), values.dtype).reshape(values.shape)
        case 5 if values.ndim and values.size:
            options = {
                "chunks": True,
                "compression": chance.choice((None, "gzip", "lzf")),
                "shuffle": chance.random() < 0.5,
            }
        case _:
            values = (
                np.zeros(values.shape, h5py.string_dtype()) if chance.random() < 0.02 else values[..., None]
            )
    del file[path]
    file.create_dataset(path, data=values, **options)
    if options and chance.random() < 0.5:  # the packed values are damaged
        dataset = file[path]
        mask, packed = dataset.id.read_direct_chunk((0,) * dataset.ndim)
        dataset.id.write_direct_chunk((0,) * dataset.ndim, bytes_changed(packed, chance), mask)
