"""XMP sidecars: keywords are added, and everything else stays, byte for byte."""

from __future__ import annotations

import json
import shutil
import subprocess
import unicodedata
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.exports.xmp import (
    HIERARCHY,
    LARGEST,
    SUBJECT,
    SidecarError,
    add_keywords,
    make_sidecar,
    read_keywords,
)

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
DC = "http://purl.org/dc/elements/1.1/"
# As darktable and others write it, with everything that a careless program would lose.
RICH = f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- kept: é -->
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="XMP Core 4.4.0-Exiv2">
 <rdf:RDF xmlns:rdf="{RDF}">
  <rdf:Description rdf:about=""
    xmlns:dc="{DC}" xmlns:own="urn:of-another-program"
    own:b='2 > 1' own:a="1">
   <own:history><rdf:Seq><rdf:li own:operation="sharpen"/></rdf:Seq></own:history>
   <dc:subject>
    <rdf:Bag>
     <rdf:li>holiday</rdf:li>
     <!-- a comment in the list -->
     <rdf:li>Größe &amp; Co</rdf:li>
    </rdf:Bag>
   </dc:subject>
   <own:parts rdf:parseType="Resource">
    <dc:subject><rdf:Bag><rdf:li>not mine</rdf:li></rdf:Bag></dc:subject>
   </own:parts>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
"""
LABELS = (
    st.text(
        st.characters(
            min_codepoint=1, blacklist_categories=["Cs", "Cc"], blacklist_characters="\ufffe\uffff"
        ),
        min_size=1,
    )
    .map(str.strip)
    .filter(bool)
)


def subjects(content: bytes) -> list[str]:
    """Return the subjects by another parser, of all lists that belong to the description itself."""
    root = ElementTree.fromstring(content)
    return [
        (item.text or "").strip()
        for item in root.findall(
            f".//{{{RDF}}}RDF/{{{RDF}}}Description/{{{DC}}}subject/{{{RDF}}}Bag/{{{RDF}}}li"
        )
    ]


def test_everything_else_stays_byte_for_byte() -> None:
    changed = add_keywords(RICH.encode(), {SUBJECT: ["fox", "holiday"]}).decode()
    line = "     <rdf:li>Größe &amp; Co</rdf:li>\n"
    assert changed == RICH.replace(line, f"{line}     <rdf:li>fox</rdf:li>\n")


def test_a_second_time_changes_nothing() -> None:
    keywords = {SUBJECT: ["fox"], HIERARCHY: ["animal|fox"]}
    once = add_keywords(RICH.encode(), keywords)
    assert add_keywords(once, keywords) is once
    assert read_keywords(once, HIERARCHY) == ["animal|fox"]


def test_two_unicode_forms_of_a_keyword_are_one() -> None:
    composed = make_sidecar({SUBJECT: ["caf\u00e9"]})
    assert add_keywords(composed, {SUBJECT: ["cafe\u0301"]}) is composed


@pytest.mark.parametrize(
    "content",
    [
        f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="{RDF}"/></x:xmpmeta>',
        f'<r:RDF xmlns:r="{RDF}"><r:Description r:about="" xmlns:q="a>b" q:x="/>"/></r:RDF>',
        f'<RDF xmlns="{RDF}"></RDF>',
        f'<RDF xmlns="{RDF}"><Description><s xmlns="{DC}"/></Description></RDF>',
        f'<r:RDF xmlns:r="{RDF}"><r:Description><d:subject xmlns:d="{DC}"><r:Bag/></d:subject>'
        "</r:Description></r:RDF>",
        f'<r:RDF xmlns:r="{RDF}"><r:Description><d:subject xmlns:d="{DC}"><r:Bag><r:li/></r:Bag></d:subject>'
        "</r:Description><r:Description><r:x/></r:Description></r:RDF>",
    ],
)
def test_unusual_forms_are_extended(content: str) -> None:
    """Prefixes, empty tags and quotes may be anything; what was there stays, in its order."""
    changed = add_keywords(content.encode(), {SUBJECT: ["dog", "fox"]})
    assert read_keywords(changed, SUBJECT)[-2:] == ["dog", "fox"]
    assert subjects(b"<all>%s</all>" % changed)[-2:] == ["dog", "fox"]
    left = iter(changed.decode())
    assert all(sign in left for sign in content.replace("/>", ">"))


@given(st.lists(LABELS, max_size=6), st.lists(LABELS, min_size=1, max_size=6))
def test_any_label_comes_back(first: list[str], second: list[str]) -> None:
    content = add_keywords(make_sidecar({SUBJECT: first}), {SUBJECT: second})
    found = subjects(content)
    assert found == read_keywords(content, SUBJECT)
    forms = [unicodedata.normalize("NFC", text) for text in [*first, *second]]
    assert [unicodedata.normalize("NFC", text) for text in found] == list(dict.fromkeys(forms))
    assert add_keywords(content, {SUBJECT: [*second, *first]}) is content


DAMAGED = "the sidecar is damaged, or not XML"
BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + RICH.partition("\n")[2].replace(
    "holiday", "&b;"
)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", DAMAGED),
        (b"GIF89a", DAMAGED),
        (RICH.encode()[:300], DAMAGED),
        (b"<html/>", "the sidecar is not XMP: it has no rdf:RDF"),
        (BOMB.encode(), "the sidecar has a document type, which XMP does not have"),
        (RICH.encode("utf-16"), "the sidecar is not UTF-8"),
        (RICH.replace("UTF-8", "ISO-8859-1").encode("latin-1"), "the sidecar is not UTF-8"),
        (RICH.replace("UTF-8", "nonsense").encode(), "the sidecar is not UTF-8"),
        (RICH.encode("latin-1"), DAMAGED),
        (RICH.replace("holiday", "&undeclared;").encode(), DAMAGED),
        (b"<a>" * 101 + b"</a>" * 101, "the elements of the sidecar are nested too deeply"),
        (b" " * (LARGEST + 1), "the sidecar is too large"),
        (
            f'<r:RDF xmlns:r="{RDF}"><r:Description xmlns:d="{DC}" d:subject="cat"/></r:RDF>'.encode(),
            "dc:subject is an attribute, and not a list",
        ),
        (
            f'<r:RDF xmlns:r="{RDF}"><r:Description><d:subject xmlns:d="{DC}">cat</d:subject>'
            "</r:Description></r:RDF>".encode(),
            "dc:subject is not a list of keywords",
        ),
    ],
)
def test_a_sidecar_that_cannot_be_extended_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(SidecarError) as caught:
        add_keywords(content, {SUBJECT: ["fox"]})
    assert str(caught.value) == reason


def test_a_document_type_in_another_encoding_is_refused_by_the_parser() -> None:
    """UTF-7 and the like would hide it from a search in bytes."""
    with pytest.raises(SidecarError):
        add_keywords(BOMB.encode("utf-16-be"), {SUBJECT: ["fox"]})


@pytest.mark.parametrize("label", ["a\0b", "\x1b[31m", "\ud800", "\ufffe"])
def test_a_label_that_xml_cannot_contain_is_refused(label: str) -> None:
    with pytest.raises(SidecarError, match="the label has a character that XML cannot contain"):
        make_sidecar({SUBJECT: [label]})


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="needs exiftool, which .ci/programs installs")
@pytest.mark.parametrize("before", [None, RICH.encode()], ids=["new", "existing"])
def test_exiftool_reads_the_keywords(tmp_path: Path, before: bytes | None) -> None:
    keywords = {SUBJECT: ["fox", "<Größe> & 'x'"], HIERARCHY: ["animal|mammal|fox"]}
    path = tmp_path / "photo.jpg.xmp"
    path.write_bytes(make_sidecar(keywords) if before is None else add_keywords(before, keywords))
    command = ["exiftool", "-j", "-XMP-dc:Subject", "-XMP-lr:HierarchicalSubject", "-warning", str(path)]
    done = subprocess.run(command, capture_output=True, check=True)
    (found,) = json.loads(done.stdout)
    known = [] if before is None else ["holiday", "Größe & Co"]
    assert found == {
        "SourceFile": str(path),
        "Subject": [*known, *keywords[SUBJECT]],
        "HierarchicalSubject": "animal|mammal|fox",
    }
