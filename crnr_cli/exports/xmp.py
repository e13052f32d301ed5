"""Add keywords to an XMP sidecar: new bytes are inserted, and all others stay as they are.

A sidecar may be anyone's. Python's expat parser finds the places in it, and resolves no entities: a document
type, which could declare some, is refused before the first byte is parsed, and once more by the parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple
from xml.parsers import expat

from crnr_cli.exports.base import PROGRAM
from crnr_cli.records import dataclass
from crnr_cli.system.names import class_key

LARGEST = 4 * 2**20  # bytes of a sidecar
_DEEPEST = 100  # elements in each other
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_META = "adobe:ns:meta/"
_ROOTS = ((f"{_META} xmpmeta", f"{_RDF} RDF"), (f"{_RDF} RDF",))
_LISTS = tuple(f"{_RDF} {kind}" for kind in ("Bag", "Seq", "Alt"))
_UTF_8 = ("utf-8", "us-ascii", "utf8")
# Characters that XML 1.0 does not allow, not even as references.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord("\r"): "&#13;"}
_SPACE = re.compile(rb"\s*\Z")
_TAG_NAME = re.compile(rb"</?([^\s/>]+)")


class Property(NamedTuple):
    """A list of texts in the metadata."""

    namespace: str
    prefix: str
    name: str

    @property
    def expanded(self) -> str:
        """The name as the parser reports it."""
        return f"{self.namespace} {self.name}"


SUBJECT = Property("http://purl.org/dc/elements/1.1/", "dc", "subject")
# Levels are separated by bars: animal|mammal|fox.
HIERARCHY = Property("http://ns.adobe.com/lightroom/1.0/", "lr", "hierarchicalSubject")

_EMPTY = f"""<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="{_META}" x:xmptk="{PROGRAM}">
 <rdf:RDF xmlns:rdf="{_RDF}">
  <rdf:Description rdf:about="">
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
""".encode()


class SidecarError(Exception):
    """Why a sidecar is left as it is."""


@dataclass(eq=False)
class _Element:
    """Where an element is, in bytes."""

    start: int  # of its start tag
    end: int = 0  # where its end tag begins, if it has one
    children: list[_Element] = field(default_factory=list)
    name: str = ""
    text: list[str] = field(default_factory=list)


@dataclass
class _Found:
    """The parts of a sidecar that matter here."""

    rdf: _Element | None = None
    descriptions: list[_Element] = field(default_factory=list)
    as_attributes: set[str] = field(default_factory=set)


def make_sidecar(keywords: Mapping[Property, Sequence[str]]) -> bytes:
    return add_keywords(_EMPTY, keywords)


def add_keywords(content: bytes, keywords: Mapping[Property, Sequence[str]]) -> bytes:
    """Return the sidecar with these keywords; the same bytes if it has them already.

    SidecarError if it is not XMP, or holds them in a form that cannot be extended.
    """
    for prop, texts in keywords.items():
        content = _add_to_property(content, prop, texts)
    return content


def read_keywords(content: bytes, prop: Property) -> list[str]:
    """Return the keywords in a sidecar."""
    return _keywords(_parse(content), prop)


def _keywords(found: _Found, prop: Property) -> list[str]:
    return [
        "".join(item.text).strip()
        for one in _find_properties(found, prop)
        for listed in _lists_of(one)
        for item in listed.children
        if item.name == f"{_RDF} li"
    ]


def _add_to_property(content: bytes, prop: Property, texts: Sequence[str]) -> bytes:
    found = _parse(content)
    known = set(map(class_key, _keywords(found, prop)))
    missing = [text for text in dict.fromkeys(texts) if class_key(text.strip()) not in known]
    if not missing:
        return content
    if any(_FORBIDDEN.search(text) for text in missing):
        raise SidecarError("the label has a character that XML cannot contain")
    if prop.expanded in found.as_attributes:
        raise SidecarError(f"{prop.prefix}:{prop.name} is an attribute, and not a list")
    properties = _find_properties(found, prop)
    if not properties:
        changed = _insert_property(content, found, prop, missing)
    else:
        lists = [listed for one in properties for listed in _lists_of(one)]
        if not lists:
            raise SidecarError(f"{prop.prefix}:{prop.name} is not a list of keywords")
        changed = _insert_items(content, lists[0], missing)
    if len(changed) > LARGEST:
        raise SidecarError("the sidecar would be too large")
    if _keywords(_parse(changed), prop) != [*_keywords(found, prop), *(text.strip() for text in missing)]:
        raise SidecarError("the sidecar cannot be extended without changing other parts of it")
    return changed


def _find_properties(found: _Found, prop: Property) -> list[_Element]:
    return [child for one in found.descriptions for child in one.children if child.name == prop.expanded]


def _lists_of(element: _Element) -> Iterator[_Element]:
    return (child for child in element.children if child.name in _LISTS)


def _parse(content: bytes) -> _Found:
    """Return the elements of interest; SidecarError if this is not a sidecar that is safe to read."""
    if len(content) > LARGEST:
        raise SidecarError("the sidecar is too large")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in content:
        raise SidecarError("the sidecar is not UTF-8")
    if b"<!DOCTYPE" in content:
        raise SidecarError("the sidecar has a document type, which XMP does not have")
    walker = _Walker()
    try:
        walker.parse(content)
    except expat.ExpatError as e:
        raise SidecarError("the sidecar is damaged, or not XML") from e
    except (ValueError, LookupError, RecursionError) as e:  # an unknown encoding
        raise SidecarError("the sidecar is not UTF-8") from e
    if walker.found.rdf is None:
        raise SidecarError("the sidecar is not XMP: it has no rdf:RDF")
    return walker.found


class _Walker:
    """Collects the elements down to the items of lists; deeper ones are only counted."""

    def __init__(self) -> None:
        self.found = _Found()
        self._path: list[_Element] = []
        self._inside: int | None = None  # the level of the children of rdf:RDF, while it is open
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._read_text
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._parser.XmlDeclHandler = self._check_declaration

    def parse(self, content: bytes) -> None:
        self._parser.Parse(content, True)

    def _refuse_doctype(self, *_: object) -> None:
        raise SidecarError("the sidecar has a document type, which XMP does not have")

    def _check_declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        if encoding and encoding.lower() not in _UTF_8:
            raise SidecarError("the sidecar is not UTF-8")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        level, inside = len(self._path), self._inside
        if level >= _DEEPEST:
            raise SidecarError("the elements of the sidecar are nested too deeply")
        element = _Element(self._parser.CurrentByteIndex, name=name)
        if inside is None:
            if self.found.rdf is None and (*(one.name for one in self._path), name) in _ROOTS:
                self.found.rdf, self._inside = element, level + 1
        elif level == inside and name == f"{_RDF} Description":
            self.found.descriptions.append(element)
            self.found.as_attributes |= attributes.keys()
        elif inside < level <= inside + 3 and self._path[inside] in self.found.descriptions[-1:]:
            self._path[-1].children.append(element)
        self._path.append(element)

    def _end(self, _name: str) -> None:
        element = self._path.pop()
        element.end = self._parser.CurrentByteIndex
        if element is self.found.rdf:
            self._inside = None

    def _read_text(self, text: str) -> None:
        self._path[-1].text.append(text)


def _insert_items(content: bytes, listed: _Element, texts: Sequence[str]) -> bytes:
    """Insert items after the last one, with the space before it: one line each, if they have lines."""
    name = _tag_name(content, listed.start)
    prefix = name[: name.find(b":") + 1]
    last = listed.children[-1] if listed.children else None
    before = _space_before(content, last.start) if last else b""
    items = b"".join(before + _item(prefix, text) for text in texts)
    if last:
        place = _end_of(content, last)
        return content[:place] + items + content[place:]
    return _append(content, listed, items)


def _insert_property(content: bytes, found: _Found, prop: Property, texts: Sequence[str]) -> bytes:
    """Insert a new list at the end of the first description; its names are declared where they are used."""
    assert found.rdf is not None
    if not found.descriptions:
        name = _tag_name(content, found.rdf.start)
        prefix = name[: name.find(b":") + 1]
        about = b"%sabout" % prefix if prefix else b'xmlns:rdf="%s" rdf:about' % _RDF.encode()
        text = b'<%sDescription %s=""></%sDescription>\n' % (prefix, about, prefix)
        content = _append(content, found.rdf, text)
        return _insert_property(content, _parse(content), prop, texts)
    description = found.descriptions[0]
    space = _space_before(content, description.start)
    indent = space.rpartition(b"\n")[2] if b"\n" in space else b""
    tag = f"{prop.prefix}:{prop.name}".encode()
    names = f'xmlns:{prop.prefix}="{prop.namespace}" xmlns:rdf="{_RDF}"'.encode()
    items = b"".join(b"%s   %s\n" % (indent, _item(b"rdf:", text)) for text in texts)
    block = b"%s <%s %s>\n%s  <rdf:Bag>\n%s%s  </rdf:Bag>\n%s </%s>\n%s" % (
        *(indent, tag, names, indent, items, indent, indent, tag, indent),
    )
    # The end tag keeps its line and its indent.
    if not _is_empty_tag(content, description) and content.endswith(b"\n" + indent, 0, description.end):
        place = description.end - len(indent)
        return content[:place] + block.removesuffix(indent) + content[place:]
    return _append(content, description, b"\n" + block)


def _append(content: bytes, element: _Element, text: bytes) -> bytes:
    """Insert a text at the end of an element."""
    if not _is_empty_tag(content, element):
        return content[: element.end] + text + content[element.end :]
    end = _end_of_tag(content, element.start)
    tag = content[element.start : end].removesuffix(b"/>")
    closing = b"</%s>" % _tag_name(content, element.start)
    return content[: element.start] + tag + b">" + text + closing + content[end:]


def _item(prefix: bytes, text: str) -> bytes:
    return b"<%sli>%s</%sli>" % (prefix, text.translate(_ESCAPES).encode(), prefix)


def _tag_name(content: bytes, start: int) -> bytes:
    found = _TAG_NAME.match(content, start)
    assert found is not None
    return found[1]


def _space_before(content: bytes, place: int) -> bytes:
    found = _SPACE.search(content, max(0, content.rfind(b">", 0, place) + 1), place)
    return found[0] if found else b""


def _is_empty_tag(content: bytes, element: _Element) -> bool:
    return content.endswith(b"/>", element.start, _end_of_tag(content, element.start))


def _end_of(content: bytes, element: _Element) -> int:
    return _end_of_tag(content, element.start if _is_empty_tag(content, element) else element.end)


def _end_of_tag(content: bytes, start: int) -> int:
    """Return the end of a tag; a value in quotes may contain >."""
    quote = 0
    for place in range(start, len(content)):
        sign = content[place]
        if quote:
            quote = 0 if sign == quote else quote
        elif sign in b"\"'":
            quote = sign
        elif sign == ord(">"):
            return place + 1
    raise SidecarError("the sidecar is damaged, or not XML")
