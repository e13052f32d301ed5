"""Broader classes: read a table of classes and their parents, and answer doubtful queries with an ancestor.

The probability of an ancestor is the sum over the gallery's classes at or below it. If no class is probable
enough, the narrowest ancestor that is becomes the label.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array, FewClasses, Values
from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.results.decision import BROADER, OK, REJECTED, UNKNOWN, Answers, Prediction, is_too_close
from crnr_cli.results.probability import round_probabilities
from crnr_cli.results.scores import Interval, has_answer, wilson_interval
from crnr_cli.system.csv_file import read_records, require_file, require_utf_8
from crnr_cli.system.names import Spellings, class_key, stat_or_none
from crnr_cli.wording import Note, format_count, has_or_have, is_or_are, suggest_similar

MOST_LEVELS = 100
MOST_BYTES = 2**28
_MOST_SUMS = 2**22  # probabilities of ancestors that are in memory at a time
_MOST_COMPARED = 1_000_000  # pairs of names, to find misspelt ones: some ten seconds
_REMEDY = "write one row per class"


@dataclass(frozen=True)
class Taxa:
    """A table of classes and their parents, without cycles."""

    path: Path
    parents: dict[str, str]  # the parent of every name; empty for the broadest
    ranks: dict[str, str] = field(default_factory=dict)  # the level of a name, such as genus

    @cached_property
    def _spellings(self) -> Spellings:
        return Spellings(self.parents)

    def find(self, name: str) -> str | None:
        """Return the name in the spelling of the table, or None."""
        return self._spellings.find(name)

    def list_above(self, name: str) -> list[str]:
        """Return the ancestors of a name, the narrowest first."""
        found = self.find(name)
        above = []
        while found and (found := self.parents[found]):
            above.append(found)
        return above

    def contains(self, ancestor: str, name: str) -> bool:
        """Return whether a name is the ancestor or below it."""
        wanted = self.find(ancestor)
        return wanted is not None and wanted in (self.find(name), *self.list_above(name))

    def digest(self) -> str:
        """Return one text for all tables with the same contents."""
        rows = sorted((name, parent, self.ranks.get(name, "")) for name, parent in self.parents.items())
        return hashlib.sha256(repr(rows).encode("utf-8", "surrogateescape")).hexdigest()


def read_taxa(path: Path, *, for_keywords: bool = False) -> Taxa:
    """Read a table with the columns class and parent, and maybe rank, the name of the level of a class.

    Names `for_keywords` cannot contain the sign between levels.
    """
    require_file(path, "give a table with the columns class and parent")
    found = stat_or_none(path)
    if found is not None and found.st_size > MOST_BYTES:
        raise DataError(f"{path}: is larger than {MOST_BYTES >> 20} MB; {_REMEDY}")
    spellings = Spellings()
    parents: dict[str, str] = {}
    ranks: dict[str, str] = {}
    for fields, where, _ in read_records(path, ("class", "parent"), _REMEDY, ("rank",)):
        name, parent, rank = fields
        for text in fields:
            require_utf_8(text, where, "the table")
        for text in (name, parent):
            _check_name(text, where, for_keywords)
        if not name:
            raise DataError(f"{where}: the column class is empty")
        name, parent = spellings.learn(name), parent and spellings.learn(parent)
        if (earlier := parents.setdefault(name, parent)) != parent:
            parts = [repr(one) if one else "none" for one in (earlier, parent)]
            raise DataError(f"{where}: {name!r} has two parents, {parts[0]} and {parts[1]}")
        if rank and ranks.setdefault(name, rank) != rank:
            raise DataError(f"{where}: {name!r} has two ranks, {ranks[name]!r} and {rank!r}")
    for parent in list(parents.values()):
        if parent:
            parents.setdefault(parent, "")
    _check_levels(parents, path)
    return Taxa(path, parents, ranks)


def _check_name(name: str, where: str, for_keywords: bool) -> None:
    if for_keywords and "|" in name:
        raise DataError(f"{where}: {name!r} contains |, which separates levels in the metadata")
    if class_key(name).casefold() == UNKNOWN:
        raise DataError(f"{where}: {name!r} is the label of rejected queries; choose another name")


def _check_levels(parents: dict[str, str], path: Path) -> None:
    """Refuse cycles, and tables with very many levels."""
    levels: dict[str, int] = {"": 0}
    for start in parents:
        name, way = start, dict[str, None]()
        while name not in levels:
            if name in way:
                raise DataError(f"{path}: {name!r} is its own ancestor")
            way[name] = None
            name = parents[name]
        for level, each in enumerate(reversed(way), levels[name] + 1):
            levels[each] = level
        if levels[start] > MOST_LEVELS:
            raise DataError(f"{path}: {start!r} has {levels[start] - 1} ancestors; at most {MOST_LEVELS - 1}")


@dataclass(frozen=True)
class BroaderClasses:
    """The ancestors of a gallery's classes that can be answers: the narrowest first, equal ones by name."""

    names: list[str]
    ranks: list[str]
    sizes: Array  # (A,): the number of the gallery's classes at or below each, ascending
    membership: Any  # (K, A), sparse: 1 if a class is at or below an ancestor
    class_ranks: dict[str, str]  # the rank of every class
    notes: list[Note]

    @classmethod
    def of(cls, taxa: Taxa, classes: Sequence[str]) -> BroaderClasses:
        """Return the ancestors of these classes; refuse a table that has none of the classes."""
        from scipy.sparse import csr_array  # slow to import, and only broader classes need it

        found = list(map(taxa.find, classes))
        if not any(found):
            raise DataError(
                f"{taxa.path}: has none of the gallery's classes, such as {classes[0]!r}"
                f"{_suggest(classes[0], list(taxa.parents))}"
            )
        chains = [[one, *taxa.list_above(one)] if one else [] for one in found]
        heights: dict[str, int] = {}  # the number of levels down to the farthest class of the gallery
        for chain in chains:
            for height, name in enumerate(chain):
                heights[name] = max(height, heights.get(name, 0))
        sizes = Counter(name for chain in chains for name in chain)
        # One with the same classes as a narrower one, or with one class only, is never the answer.
        useless = {name for chain in chains for name in _list_repeated(chain, sizes)}
        wanted = [name for name, size in sizes.items() if size > 1 and name not in useless]
        names = sorted(wanted, key=lambda name: (sizes[name], name))
        places = {name: place for place, name in enumerate(names)}
        pairs = [(k, places[name]) for k, chain in enumerate(chains) for name in chain if name in places]
        rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        shape = (len(classes), len(names))
        return cls(
            names,
            [taxa.ranks.get(name) or str(heights[name]) for name in names],
            np.array([sizes[name] for name in names], dtype=np.int64),
            csr_array((np.ones(len(rows)), (rows, columns)), shape=shape),
            {one: taxa.ranks.get(name or "") or "0" for one, name in zip(classes, found, strict=True)},
            list(_list_notes(taxa, classes, found)),
        )

    def choose(self, probabilities: Values, least: float) -> tuple[Array, Array]:
        """Return (m,): the place of the narrowest ancestor that is probable enough, or -1; and (m,): how.

        Of ancestors with equally many classes, the most probable is chosen, and then the first by name.
        """
        m, count = len(probabilities), len(self.names)
        places, sums = np.full(m, -1), np.zeros(m)
        step = max(1, _MOST_SUMS // max(1, count))
        for start in range(0, m if count else 0, step):
            part = slice(start, start + step)
            # As written, so that the decision can be repeated from the printed figures.
            of_part = round_probabilities(self._sum(probabilities[part]))
            reaches = of_part >= least
            smallest = self.sizes[reaches.argmax(axis=1)]
            reaches &= self.sizes == smallest[:, np.newaxis]
            best = np.where(reaches, of_part, -1.0).argmax(axis=1)
            rows = np.arange(len(best))
            places[part] = np.where(reaches[rows, best], best, -1)
            sums[part] = of_part[rows, best]
        return places, sums

    def _sum(self, probabilities: Values) -> Array:
        """Return (m, A): the probabilities of the ancestors."""
        if not isinstance(probabilities, FewClasses):
            return np.asarray(probabilities @ self.membership)
        from scipy.sparse import csr_array

        m, t = probabilities.values.shape
        others = probabilities.others[:, np.newaxis]
        own = (probabilities.values - others).ravel()
        starts = np.arange(0, m * t + 1, t) if t else np.zeros(m + 1, np.int64)
        few = csr_array((own, probabilities.classes.ravel(), starts), shape=probabilities.shape)
        return np.asarray((few @ self.membership).toarray() + others * self.sizes)

    def apply(self, rows: list[Prediction], answers: Answers) -> list[Prediction]:
        """Return the rows with ranks; those too improbable for a class get a broader one, if there is one."""
        least = answers.sureness.min_probability if answers.sureness else 0.0
        queries = answers.batch.rows
        answered = [rows[query] for query in queries.tolist()]
        separations = np.array([row.separation for row in answered], dtype=answers.residuals.dtype)
        is_doubtful = np.array([row.status == REJECTED for row in answered], dtype=bool)
        is_doubtful &= ~is_too_close(separations, answers.min_separation)
        found = list(rows)
        for query, row in zip(queries.tolist(), answered, strict=True):
            rank = self.class_ranks[row.label or ""] if row.status == OK else None
            found[query] = row._replace(rank=rank, class_probability=row.probability)
        assert answers.probabilities is not None
        chosen = self.choose(answers.probabilities[is_doubtful], least)
        decided = zip(queries[is_doubtful].tolist(), *(one.tolist() for one in chosen), strict=True)
        for query, place, probability in decided:
            if place >= 0:
                found[query] = found[query]._replace(
                    label=self.names[place], status=BROADER, probability=probability, rank=self.ranks[place]
                )
        return found


def _list_repeated(chain: Sequence[str], sizes: Counter[str]) -> Iterator[str]:
    """Yield each ancestor that has as many classes as the one before it, and so the same."""
    for below, name in pairwise(chain):
        if sizes[below] == sizes[name]:
            yield name


def _list_notes(taxa: Taxa, classes: Sequence[str], found: Sequence[str | None]) -> Iterator[Note]:
    """Yield notes on classes of the gallery that are not in the table, and the other way round."""
    missing = [name for name, one in zip(classes, found, strict=True) if one is None]
    if missing:
        number = format_count(len(missing), "class")
        text = f"{number} of the gallery {is_or_are(len(missing))} not in it, such as {missing[0]}"
        yield Note("taxa", f"{taxa.path}: {text}, and {has_or_have(len(missing))} no broader class")
    known, above = set(found), set(taxa.parents.values())
    strange = [name for name in taxa.parents if name not in known and name not in above]
    if strange:
        hints = {name: _suggest(name, missing) for name in strange} if _are_few(strange, missing) else {}
        first = next((name for name in strange if hints.get(name)), strange[0])
        number = format_count(len(strange), "class")
        text = f"the gallery does not have {number} of it, such as {first}{hints.get(first, '')}"
        yield Note("taxa", f"{taxa.path}: {text}")


def _are_few(names: Sequence[str], known: Sequence[str]) -> bool:
    return len(names) * len(known) <= _MOST_COMPARED


def _suggest(name: str, known: Sequence[str]) -> str:
    return suggest_similar(name, known, 0.75) if _are_few([name], known) else ""


@dataclass(frozen=True)
class BroaderScores:
    """The exact and the broader answers to known queries, counted apart."""

    n: int  # known queries
    exact: int  # with a class as the label
    exact_right: int
    broader: int  # with a broader class as the label
    broader_right: int | None  # the true class is at or below the label; None without the table
    outsiders: int  # outsiders with a broader class as the label
    outsiders_right: int | None  # of these: the table has their true class at or below the label
    wrong: list[Prediction]  # broader answers to queries with another true class

    @property
    def answer_rate(self) -> float | None:
        """The share of the known queries with an exact or a broader answer."""
        return (self.exact + self.broader) / self.n if self.n else None

    @property
    def right(self) -> int | None:
        return None if self.broader_right is None else self.exact_right + self.broader_right

    @property
    def accuracy(self) -> float | None:
        """The share of right answers among all answers, exact or broader."""
        answers = self.exact + self.broader
        return None if self.right is None or not answers else self.right / answers

    @property
    def interval(self) -> Interval | None:
        answers = self.exact + self.broader
        return None if self.right is None or not answers else wilson_interval(self.right, answers)

    @property
    def broader_accuracy(self) -> float | None:
        return self.broader_right / self.broader if self.broader and self.broader_right is not None else None

    @property
    def broader_interval(self) -> Interval | None:
        if self.broader_right is None or not self.broader:
            return None
        return wilson_interval(self.broader_right, self.broader)

    def to_record(self) -> dict[str, Any]:
        names = ("n", "exact", "exact_right", "broader", "broader_right", "broader_accuracy")
        more = ("broader_interval", "answer_rate", "accuracy", "interval", "outsiders", "outsiders_right")
        return {name: getattr(self, name) for name in (*names, *more)}


def score_broader(
    known: Sequence[Prediction], outsiders: Sequence[Prediction], taxa: Taxa | None
) -> BroaderScores | None:
    """Return the counts; None if there is neither a table nor a broader answer."""
    of_known, of_outsiders = ([row for row in rows if row.status == BROADER] for rows in (known, outsiders))
    if taxa is None and not of_known and not of_outsiders:
        return None
    exact = [row for row in known if has_answer(row)]
    wrong = [] if taxa is None else [row for row in (*of_known, *of_outsiders) if not _is_right(row, taxa)]
    right = None if taxa is None else sum(_is_right(row, taxa) for row in of_known)
    right_outside = None if taxa is None else sum(_is_right(row, taxa) for row in of_outsiders)
    return BroaderScores(
        n=len(known),
        exact=len(exact),
        exact_right=sum(row.label == row.truth for row in exact),
        broader=len(of_known),
        broader_right=right,
        outsiders=len(of_outsiders),
        outsiders_right=right_outside,
        wrong=wrong,
    )


def _is_right(row: Prediction, taxa: Taxa) -> bool:
    return taxa.contains(row.label or "", row.truth or "")
