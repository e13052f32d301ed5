"""Plain prose: no phrase that makes a reader look back, and one name per concept, in all that people read."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

import pytest

from helpers.modules import MODULES, PACKAGE, Module, refuse_where

ROOT = Path(__file__).parents[2]

# The style guide is not checked: it quotes the phrases to avoid.
EXCEPTED = (ROOT / "docs" / "developing" / "style.md",)

_VERBS = "is|are|was|were|has|have|had|can|cannot|may|must|will|would"

# Patterns for sentences in lower case, and the advice for each.
ADVICE = {
    rf"^what(?:ever)? [^ ?]+ [^?]*\b(?:{_VERBS})\b[^?]*$": "name the thing instead of 'what ...'",
    r"^who(?:ever)? [^ ?]+ [^?]*$": "name the person or program",
    r"\b(?:that|those) of\b": "repeat the noun",
    r"\b(?:says|said)\b": "things do not speak: prints, contains, declares",
    r"\basked\b": "held out, requested, or tested",
    r"\bspeaks? (?:for|against)\b": "supports, contradicts",
    r"\banswers? for (?:no |the )?others?\b": "is used to classify",
    r"\b(?:is|are) none\b": "repeat the noun: is not a file, has no label",
    r"\banew\b": "again",
    r"\bso many\b": "give the number, or its name",
    r"\bin words\b(?! that)": "with an error message",
    r"\btaken for\b": "confused with, read as",
    r"\b(?:nobody|somebody|anybody|strangers?)\b": "no user, another user, an untrusted file",
    r"\bbeside\b": "next to",
    r"\bby (?:itself|themselves)\b": "alone, separately",
    r"\bhow sure\b|\bunsure\b": "probability, uncertain",
    r"(?<![-_./\w])pictures?(?![-_\w])": "image",
    r"\bfiles? of (?:features|raw values)\b": "feature file",
    r"\bfolders? of (?:a|the|its) class(?:es)?\b": "class folder",
    r"\bdirector(?:y|ies)\b": "folder",
    r"\bparameters of methods\b": "method parameters",
}
_ANY = re.compile(
    "|".join([r"\bwhat", r"\bwho\b|\bwhoever", *(pattern for pattern in ADVICE if pattern[0] != "^")])
)
_SENTENCE = re.compile(r"[^\s.;:(](?:[^.;:]|[.;:](?=\S))*")

# The beginnings of docstrings that describe a value, not what a function does.
_NO_VERB = re.compile(
    r"\(|(?:The|An?|All|As|By|Each|Every|For|From|How|If|In|None|Of|On|One|Only|Some|Such|That|This|Those|To|"
    r"What|When|Where|Whether|Which|Who|Why|With|Without)\b"
)

# Sentences in which the phrase is right.
RIGHT: frozenset[str] = frozenset(
    {
        'Files and JSON keep "pictures" for images',
        "What you can do",  # a heading, not a clause
    }
)


@dataclass(frozen=True)
class Block:
    """A piece of text: a docstring, a comment, a string, a paragraph."""

    file: str
    line: int
    lines: Sequence[str]

    def offenders(self) -> Iterator[tuple[str, str]]:
        """Yield each sentence to rewrite, and a line of a message about it."""
        stripped = [line.strip() for line in self.lines]
        text = " ".join(stripped)
        # Code is not prose, and None is not a noun.
        masked = re.sub(r"`[^`]*`|\bNone\b", lambda code: "`" * len(code[0]), text).lower()
        if not _ANY.search(masked):
            return
        starts = list(accumulate((len(line) + 1 for line in stripped), initial=0))
        for sentence in _SENTENCE.finditer(masked):
            own = text[sentence.start() : sentence.end()].rstrip()
            for pattern, advice in ADVICE.items():
                if found := re.search(pattern, sentence[0]):
                    line = self.line + bisect_right(starts, sentence.start() + found.start()) - 1
                    yield own, f"{self.file}:{line}: {own}: {advice}"


def _paragraphs(file: str, lines: Sequence[str], first: int) -> Iterator[Block]:
    """Yield the blocks between empty lines."""
    begin = 0
    for end, line in enumerate([*lines, ""]):
        if not line.strip():
            if begin < end:
                yield Block(file, first + begin, lines[begin:end])
            begin = end + 1


def _of_module(module: Module) -> Iterator[Block]:
    file, lines = f"crnr_cli/{module.name}", module.text.splitlines()
    unread = set()
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and ast.get_docstring(node):
            doc = node.body[0]
            unread.add(doc.value)  # type: ignore[attr-defined]
            text = [line.replace('"""', "") for line in lines[doc.lineno - 1 : doc.end_lineno]]
            yield from _paragraphs(file, text, doc.lineno)
    yield from _comments(file, lines)
    unread |= {part for node in module.nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in module.nodes:
        match node:
            case ast.Constant(value=str(text)) if node not in unread and " " in text:
                yield Block(file, node.lineno, [text])
            case ast.JoinedStr(values=parts):
                texts = [part.value if isinstance(part, ast.Constant) else "{}" for part in parts]
                yield Block(file, node.lineno, ["".join(map(str, texts))])


def _comments(file: str, lines: Sequence[str]) -> Iterator[Block]:
    """Yield the comments; those on consecutive lines of their own are one block."""
    whole: list[str] = []
    for number, line in enumerate([*lines, ""], 1):
        if line.lstrip().startswith("# "):
            whole.append(line.lstrip().removeprefix("# "))
            continue
        if whole:
            yield Block(file, number - len(whole), whole)
            whole = []
        if "  # " in line:
            yield Block(file, number, [line.rpartition("  # ")[2]])


def _of_page(path: Path) -> Iterator[Block]:
    """Yield the paragraphs of Markdown, or the texts of HTML, without code."""
    text = path.read_text(encoding="utf-8")
    code = r"```.*?```|^ {4}.*?$" if path.suffix == ".md" else r"<script.*?</script>|<[^>]*>|{[{%#].*?[}%#]}"
    text = re.sub(code, lambda found: re.sub("[^\n]", " ", found[0]), text, flags=re.DOTALL | re.MULTILINE)
    root = PACKAGE.parent if path.is_relative_to(PACKAGE) else ROOT
    lines = [re.sub(r"^\s*(?:[-*#>|]|\d+\.)+ ", "", line) for line in text.splitlines()]
    yield from _paragraphs(path.relative_to(root).as_posix(), lines, 1)


def _blocks() -> Iterator[Block]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(PACKAGE.rglob("*.html"))]
    for module in MODULES:
        yield from _of_module(module)
    for path in pages:
        if path not in EXCEPTED:
            yield from _of_page(path)


@cache
def _found() -> list[tuple[str, str]]:
    return [found for block in _blocks() for found in block.offenders()]


def test_prose_is_plain() -> None:
    offenders = [message for sentence, message in _found() if sentence not in RIGHT]
    assert not offenders, f"{len(offenders)} sentences to rewrite:\n" + "\n".join(offenders)


def test_every_exception_is_needed() -> None:
    assert not RIGHT - {sentence for sentence, _ in _found()}
    for path in EXCEPTED:
        assert any(list(block.offenders()) for block in _of_page(path))


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    refuse_where(_without_verb)


def _without_verb(module: Module) -> list[str]:
    found = []
    for function in module.functions:
        is_value = any("property" in ast.unparse(decorator) for decorator in function.decorator_list)
        doc = "" if is_value else ast.get_docstring(function) or ""
        if _NO_VERB.match(doc):
            found.append(f"{function.name}: {doc.splitlines()[0]}")
    return found


@pytest.mark.parametrize(
    "text",
    [
        "What was assumed is said in a note.",
        "Files are read; What cannot be used is refused.",
        "The labels are those\nof the table.",
        "The index is measured. Samples are asked for.",
        "A regular file, or the reason why it is none.",
        "Resize pictures.",
        "Write a file of\nfeatures.",
    ],
)
def test_phrases_to_avoid_are_found(text: str) -> None:
    assert list(Block("x.py", 1, text.splitlines()).offenders())


@pytest.mark.parametrize(
    "text",
    [
        "What is a gallery?",
        "What to do next.",
        "The kind is `pictures`, and is None.",
        "Use --pictures-from or docs/make_pictures.py.",
        "Make sure that official names are kept.",
    ],
)
def test_plain_phrases_are_kept(text: str) -> None:
    assert not list(Block("x.py", 1, text.splitlines()).offenders())


def test_messages_name_the_line() -> None:
    block = Block(
        "x.py", 7, ["The first line is fine.", "The second is one of the", "class, and so is that", "of all."]
    )
    assert [message.partition(": ")[0] for _, message in block.offenders()] == ["x.py:9"]
