"""Broader classes: tables of parents, and answers as a plain search through all ancestors finds them."""

from __future__ import annotations

import pickle
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.arrays import Batch, FewClasses
from crnr_cli.errors import DataError, SampleError
from crnr_cli.results import taxa as module
from crnr_cli.results.decision import Answers, Prediction, make_predictions
from crnr_cli.results.probability import Calibrated, Thresholds
from crnr_cli.results.scores import wilson_interval
from crnr_cli.results.taxa import MOST_LEVELS, BroaderClasses, Taxa, read_taxa, score_broader
from crnr_cli.wording import Note

ANIMALS = {"fox": "canid", "dog": "canid", "canid": "mammal", "cat": "mammal", "mammal": "", "hen": "bird"}


def make_taxa(parents: dict[str, str], ranks: dict[str, str] | None = None) -> Taxa:
    full = {**dict.fromkeys(filter(None, parents.values()), ""), **parents}
    return Taxa(Path("taxa.csv"), full, ranks or {})


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "taxa.csv"
    path.write_text(text, encoding="utf-8")
    return path


@st.composite
def trees(draw: st.DrawFn) -> tuple[dict[str, str], list[str]]:
    """A forest, and some of its names, inner ones too, as the classes of a gallery with others."""
    names = [f"n{i}" for i in draw(st.permutations(range(draw(st.integers(2, 12)))))]
    parents = {}
    for i, name in enumerate(names):
        above = draw(st.integers(-1, i - 1))
        parents[name] = names[above] if above >= 0 else ""
    chosen = draw(st.sets(st.sampled_from([*names, "x", "y"]), min_size=2))
    return parents, sorted(chosen)


def ancestors_of(name: str, parents: dict[str, str]) -> list[str]:
    return [] if not parents.get(name) else [parents[name], *ancestors_of(parents[name], parents)]


def search_plainly(
    parents: dict[str, str], classes: list[str], probabilities: list[float], least: float
) -> tuple[str, float] | None:
    """The narrowest name whose classes are probable enough; then the more probable, then by name.

    Of several names with the same classes, the deepest counts.
    """
    deepest: dict[tuple[int, ...], str] = {}
    for name in sorted(parents, key=lambda name: len(ancestors_of(name, parents))):
        below = [k for k, one in enumerate(classes) if name in (one, *ancestors_of(one, parents))]
        deepest[tuple(below)] = name
    found = []
    for places, name in deepest.items():
        total = round(sum(probabilities[k] for k in places), 4)
        if len(places) > 1 and total >= least:
            found.append((len(places), -total, name))
    return (min(found)[2], -min(found)[1]) if found else None


@given(trees(), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 0.5, 0.8, 1.0]))
def test_the_choice_is_the_one_of_a_plain_search(
    tree: tuple[dict[str, str], list[str]], seed: int, least: float
) -> None:
    """Probabilities are sixteenths, so that sums are exact and ties are frequent."""
    parents, classes = tree
    if not set(classes) & set(parents):
        return
    rng = np.random.default_rng(seed)
    probabilities = rng.multinomial(16, rng.dirichlet(np.ones(len(classes))), size=5) / 16
    broader = BroaderClasses.of(make_taxa(parents), classes)
    places, sums = broader.choose(probabilities, least)
    expected = [search_plainly(parents, classes, row, least) for row in probabilities.tolist()]
    found = [
        (broader.names[place], total) if place >= 0 else None
        for place, total in zip(places.tolist(), sums.tolist(), strict=True)
    ]
    assert found == expected


@given(trees(), st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_few_classes_are_summed_like_all(
    tree: tuple[dict[str, str], list[str]], seed: int, count: int
) -> None:
    parents, classes = tree
    if not set(classes) & set(parents):
        return
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(classes), (4, count))
    full = np.full((4, len(classes)), 1 / 64)
    np.put_along_axis(full, chosen, rng.integers(0, 32, chosen.shape) / 64, axis=1)
    few = FewClasses.of(chosen, np.take_along_axis(full, chosen, axis=1), 1 / 64, len(classes))
    broader = BroaderClasses.of(make_taxa(parents), classes)
    for least in (0.1, 0.4, 0.8):
        for one, other in zip(broader.choose(full, least), broader.choose(few, least), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("most", [1, 7])
def test_the_sums_are_made_in_pieces(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Of at least one query, however many ancestors there are."""
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(4), size=50)
    broader = BroaderClasses.of(make_taxa(ANIMALS), ["cat", "dog", "fox", "hen"])
    whole = broader.choose(probabilities, 0.6)
    monkeypatch.setattr(module, "_MOST_SUMS", most)
    for one, other in zip(whole, broader.choose(probabilities, 0.6), strict=True):
        np.testing.assert_array_equal(one, other)


def make_answers(residuals: list[list[float]], broader: BroaderClasses | None, least: float) -> Answers:
    errors = [*[None] * len(residuals), SampleError("truncated")]
    batch = Batch([f"q{i}" for i in range(len(errors))], errors, np.empty((len(residuals), 0)), len(errors))
    sureness = Thresholds(Calibrated(1.0, np.ones(1)), least, None, broader)
    return Answers(batch, np.array(residuals), [None] * len(errors), sureness=sureness)


def test_rows_of_all_kinds() -> None:
    """With a sharpness of 1, probabilities are proportional to 1 / residual."""
    classes = ["cat", "dog", "fox", "hen"]
    taxa = make_taxa(ANIMALS, {"fox": "species", "canid": "family"})
    broader = BroaderClasses.of(taxa, classes)
    weights = np.array([[1, 4, 4, 1], [1, 1, 17, 1], [5, 1, 1, 3], [3, 1, 1, 5], [40, 0.1, 0.1, 0.1]])
    answers = make_answers((1 / weights).tolist(), broader, 0.7)
    rows = make_predictions(answers, classes)
    assert [(row.label, row.runner_up, row.status, row.rank) for row in rows] == [
        ("canid", "dog", "broader", "family"),
        ("fox", "cat", "ok", "species"),
        ("mammal", "cat", "broader", "2"),
        ("unknown", "hen", "rejected", None),
        ("cat", "dog", "ok", "0"),
        (None, None, "truncated", None),
    ]
    assert [row.probability for row in rows] == [0.8, 0.85, 0.7, 0.5, 0.9926, None]
    assert [row.class_probability for row in rows] == [0.4, 0.85, 0.5, 0.5, 0.9926, None]
    # All else is as without the table, and what --reject rejects stays rejected.
    plain = make_predictions(make_answers((1 / weights).tolist(), None, 0.7), classes)
    assert [row[3:8] for row in plain if row.status == "ok"] == [
        row[3:8] for row in rows if row.rank in ("species", "0")
    ]
    rejecting = make_predictions(replace(answers, min_separation=0.7), classes)  # 0.667, and then 0.743
    assert [row.status for row in rejecting] == ["rejected", "ok", "broader", "rejected", "ok", "truncated"]


def test_an_ancestor_of_other_classes_than_the_best_one() -> None:
    broader = BroaderClasses.of(make_taxa(ANIMALS), ["dog", "fox", "hen"])
    places, sums = broader.choose(np.array([[0.3, 0.3, 0.4]]), 0.6)
    assert ([broader.names[place] for place in places], sums.tolist()) == (["canid"], [0.6])


def test_without_a_probable_ancestor_there_is_no_choice() -> None:
    broader = BroaderClasses.of(make_taxa(ANIMALS), ["cat", "dog", "fox", "hen"])
    places, _ = broader.choose(np.array([[0.2, 0.2, 0.1, 0.5], [0.1, 0.5, 0.3, 0.1]]), 0.75)
    assert places.tolist() == [-1, 0]


def test_a_table_of_parents_that_all_have_one_class_gives_no_choice() -> None:
    broader = BroaderClasses.of(
        Taxa(Path("taxa.csv"), {"cat": "felid", "felid": "", "hen": ""}), ["cat", "hen"]
    )
    assert (broader.names, broader.ranks, broader.class_ranks) == ([], [], {"cat": "0", "hen": "0"})
    places, sums = broader.choose(np.array([[0.5, 0.5], [0.9, 0.1]]), 0.0)
    assert (places.tolist(), sums.tolist()) == ([-1, -1], [0.0, 0.0])


def test_a_batch_of_failed_queries_has_no_broader_answers() -> None:
    broader = BroaderClasses.of(make_taxa(ANIMALS), ["cat", "dog"])
    batch = Batch(["bad"], [SampleError("truncated")], np.empty((0, 0)), 1)
    sureness = Thresholds(Calibrated(1.0, np.ones(1)), 0.7, None, broader)
    rows = make_predictions(Answers(batch, np.empty((0, 2)), ["cat"], sureness=sureness), ["cat", "dog"])
    assert rows == [Prediction("bad", "cat", None, None, None, None, "truncated")]


def test_a_separation_that_is_the_limit_as_printed_is_not_below_it() -> None:
    """In single precision, 0.7 is less than 0.7 in double precision."""
    classes = ["cat", "dog", "fox", "hen"]
    broader = BroaderClasses.of(make_taxa(ANIMALS), classes)
    answers = make_answers([[1.5, 0.3, 0.5, 1.0]], broader, 0.7)
    answers = replace(answers, residuals=answers.residuals.astype(np.float32), min_separation=0.7)
    row, _ = make_predictions(answers, classes)
    assert row.separation == float(np.float32(0.7)) < 0.7
    assert (row.label, row.status, row.probability) == ("canid", "broader", 0.7619)


def test_a_worker_gets_the_same_table() -> None:
    taxa = make_taxa(ANIMALS)
    assert taxa.contains("mammal", "fox")  # which makes what is found once
    sent = pickle.loads(pickle.dumps((taxa, BroaderClasses.of(taxa, ["cat", "dog", "fox"]))))
    assert sent[0] == taxa
    assert sent[0].list_above("fox") == ["canid", "mammal"]
    places, sums = sent[1].choose(np.array([[0.2, 0.4, 0.4]]), 0.75)
    assert ([sent[1].names[place] for place in places], sums.tolist()) == (["canid"], [0.8])
    assert taxa.digest() == make_taxa(dict(reversed(ANIMALS.items()))).digest()
    assert taxa.digest() != make_taxa(ANIMALS, {"fox": "species"}).digest()


def test_names_are_compared_as_names_of_classes(tmp_path: Path) -> None:
    composed = "Bär"
    path = write(
        tmp_path,
        f"class,parent\n{unicodedata.normalize('NFD', composed)},mammal\n{composed},mammal\ncat,mammal\n",
    )
    taxa = read_taxa(path)
    assert taxa.list_above(composed) == ["mammal"]
    assert BroaderClasses.of(taxa, [composed, "cat"]).names == ["mammal"]
    assert taxa.contains("mammal", composed)
    assert not taxa.contains(composed, "mammal")
    assert taxa.contains(composed, unicodedata.normalize("NFD", composed))
    assert not taxa.contains("nothing", "nothing")


def test_a_parent_may_have_another_spelling_than_in_its_own_row(tmp_path: Path) -> None:
    composed = "Bären"
    decomposed = unicodedata.normalize("NFD", composed)
    for first, second in ((composed, decomposed), (decomposed, composed)):
        above = read_taxa(write(tmp_path, f"class,parent\npanda,{first}\n{second},mammal\n"))
        assert above.parents == {"panda": first, first: "mammal", "mammal": ""}
        below = read_taxa(write(tmp_path, f"class,parent\n{first},mammal\npanda,{second}\n"))
        assert below.parents == {first: "mammal", "panda": first, "mammal": ""}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("class,parent\na,\na,b\n", "line 3: 'a' has two parents, none and 'b'"),
        ("class,parent\na,a\n", "'a' is its own ancestor"),
        ("class,parent\nx,a\na,b\nb,c\nc,a\n", "'a' is its own ancestor"),
        ("class,parent,rank\na,b,genus\na,b,family\n", "line 3: 'a' has two ranks, 'genus' and 'family'"),
        (
            "class,parent\na,Unknown\n",
            "line 2: 'Unknown' is the label of rejected queries; choose another name",
        ),
        ("class,parent\n,b\n", "line 2: the column class is empty"),
        ("class\na\n", "no column parent; write one row per class"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError) as error:
        read_taxa(write(tmp_path, text))
    where = f"{tmp_path / 'taxa.csv'}" + (", " if words.startswith("line") else ": ")
    assert str(error.value) == where + words


def test_a_class_has_at_most_99_ancestors(tmp_path: Path) -> None:
    lines = [f"n{i},n{i + 1}" for i in range(MOST_LEVELS - 1)]
    assert len(read_taxa(write(tmp_path, "\n".join(["class,parent", *lines]))).list_above("n0")) == 99
    longer = ["class,parent", *lines, f"n{MOST_LEVELS - 1},n{MOST_LEVELS}"]
    with pytest.raises(DataError, match=r"taxa.csv: 'n0' has 100 ancestors; at most 99$"):
        read_taxa(write(tmp_path, "\n".join(longer)))


def test_a_table_has_a_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    too_large = tmp_path / "large.csv"
    with too_large.open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(DataError, match=r"large.csv: is larger than 256 MB; write one row per class$"):
        read_taxa(too_large)
    monkeypatch.setattr(module, "MOST_BYTES", 2**20)
    header, row = "class,parent,more\n", f"a,b,{'x' * 1000}\n"
    rows = row * ((2**20 - len(header)) // len(row))
    allowed = header + rows + "\n" * (2**20 - len(header) - len(rows))
    assert read_taxa(write(tmp_path, allowed)).parents == {"a": "b", "b": ""}
    with pytest.raises(DataError, match=r"taxa.csv: is larger than 1 MB; write one row per class$"):
        read_taxa(write(tmp_path, allowed + "\n"))


@pytest.mark.parametrize("row", ["b\xe4r,a,genus", "a,b\xe4r,genus", "a,b,b\xe4r"])
def test_a_table_is_utf_8(tmp_path: Path, row: str) -> None:
    path = tmp_path / "taxa.csv"
    path.write_bytes(f"class,parent,rank\n{row}\n".encode("latin-1"))
    with pytest.raises(DataError) as error:
        read_taxa(path)
    words = "the table is not UTF-8; save the file as UTF-8, which spreadsheets call CSV UTF-8"
    assert str(error.value) == f"{path}, line 2: {words}"


def test_a_table_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read_taxa(tmp_path / "none.csv")
    rest = "give a table with the columns class and parent"
    assert str(error.value) == f"{tmp_path / 'none.csv'}: no such file; {rest}"


def test_names_for_keywords_have_no_sign_between_levels(tmp_path: Path) -> None:
    path = write(tmp_path, "class,parent\na,b|c\n")
    assert read_taxa(path).list_above("a") == ["b|c"]
    with pytest.raises(DataError) as error:
        read_taxa(path, for_keywords=True)
    words = "'b|c' contains |, which separates levels in the metadata"
    assert str(error.value) == f"{path}, line 2: {words}"


def test_notes_suggest_names() -> None:
    taxa = make_taxa({**ANIMALS, "wolf": "canid", "ostrch": "bird"})
    notes = BroaderClasses.of(taxa, ["cat", "dog", "fox", "ostrich"]).notes
    assert notes == [
        Note(
            "taxa", "taxa.csv: 1 class of the gallery is not in it, such as ostrich, and has no broader class"
        ),
        Note(
            "taxa",
            "taxa.csv: the gallery does not have 3 classes of it, such as ostrch; did you mean ostrich?",
        ),
    ]
    with pytest.raises(
        DataError, match=r"^taxa.csv: has none of the gallery's classes, such as 'Foxx'; did you mean fox\?$"
    ):
        BroaderClasses.of(taxa, ["Foxx", "Yak"])


def test_names_are_suggested_unless_there_are_too_many_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two classes that only the table has times two that it lacks."""
    taxa = make_taxa({"cat": "mammal", "foks": "mammal", "ostrch": "bird"})
    texts = []
    for most in (4, 3):
        monkeypatch.setattr(module, "_MOST_COMPARED", most)
        texts.append(BroaderClasses.of(taxa, ["cat", "ostrich", "yak"]).notes[1].text)
    words = "taxa.csv: the gallery does not have 2 classes of it, such as "
    assert texts == [f"{words}ostrch; did you mean ostrich?", f"{words}foks"]


def make_row(truth: str, label: str | None, status: str) -> Prediction:
    return Prediction("q", truth, label, 0.5, None, 0.5, status)


def test_exact_and_broader_answers_are_counted_apart() -> None:
    known = [
        make_row("fox", "fox", "ok"),
        make_row("fox", "dog", "ok"),
        make_row("fox", "canid", "broader"),
        make_row("cat", "canid", "broader"),
        make_row("cat", "mammal", "broader"),
        make_row("cat", "unknown", "rejected"),
        make_row("cat", None, "truncated"),
    ]
    outsiders = [make_row("wolf", "canid", "broader"), make_row("unknown", "mammal", "broader")]
    taxa = make_taxa({**ANIMALS, "wolf": "canid"})
    found = score_broader(known, outsiders, taxa)
    assert found is not None
    assert found.wrong == [known[3], outsiders[1]]
    assert found.to_record() == {
        **{"n": 7, "exact": 2, "exact_right": 1, "broader": 3, "broader_right": 2},
        **{"broader_accuracy": 2 / 3, "broader_interval": wilson_interval(2, 3)},
        **{"answer_rate": 5 / 7, "accuracy": 3 / 5, "interval": wilson_interval(3, 5)},
        **{"outsiders": 2, "outsiders_right": 1},
    }
    without = score_broader(known, outsiders, None)
    assert without is not None
    assert (without.broader, without.broader_right, without.accuracy, without.wrong) == (3, None, None, [])
    assert score_broader(known[:2], [], None) is None
    nothing = score_broader([], [], taxa)
    assert nothing is not None
    assert (nothing.answer_rate, nothing.accuracy, nothing.interval, nothing.broader_interval) == (None,) * 4
