"""Columns of names in CSV and Parquet: never the labels, whatever they are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crnr_cli.errors import DataError
from crnr_cli.sources.formats import Keys
from crnr_cli.sources.tables import FeatureFile
from helpers.runner import Runner

SPECIES = ["ant", "bee", "ant", "bee"]
PATHS = [f"photos/{i}.jpg" for i in range(4)]
IDS = ["n7", "n2", "n3", "n9"]
KINDS = ["csv", "parquet", "lists"]
each_kind = pytest.mark.parametrize("kind", KINDS)


def save(folder: Path, kind: str, /, **columns: Any) -> Path:
    """Write two features per row, and further columns; `lists` is Parquet with one list per row."""
    rows = [[0.5, 1.0], [2.0, 0.25], [0.75, 1.5], [3.0, 0.5]][: len(next(iter(columns.values())))]
    values = (
        {"embedding": rows} if kind == "lists" else {"u": [u for u, _ in rows], "v": [v for _, v in rows]}
    )
    frame = pd.DataFrame({**values, **columns})
    path = folder / f"x.{'csv' if kind == 'csv' else 'parquet'}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


@each_kind
@pytest.mark.parametrize(
    "name", ["path", "paths", "file", "filename", "File_Name", "image path", "photo of it"]
)
def test_columns_of_paths_are_the_names(tmp_path: Path, kind: str, name: str) -> None:
    file = FeatureFile.open(save(tmp_path, kind, species=SPECIES, **{name: PATHS}), Keys())
    assert (file.labels, file.names) == (SPECIES, PATHS)
    assert file.read_rows(0, 4).tolist() == [[0.5, 1.0], [2.0, 0.25], [0.75, 1.5], [3.0, 0.5]]


def test_names_can_be_chosen_as_labels(tmp_path: Path) -> None:
    path = save(tmp_path, "lists", species=SPECIES, path=PATHS)
    assert FeatureFile.open(path, Keys(labels="path")).labels == PATHS


@each_kind
@pytest.mark.parametrize("name", ["id", "ID", "image_id", "name", "image", "uuid"])
def test_columns_of_identifiers_are_left_out(tmp_path: Path, kind: str, name: str) -> None:
    """They may be the same in another file, and are no names of examples."""
    path = save(tmp_path, kind, **{name: IDS}, species=SPECIES)
    file = FeatureFile.open(path, Keys())
    assert (file.labels, file.names) == (SPECIES, [f"{path}#{row}" for row in range(4)])
    assert file.n_features == 2


@each_kind
def test_names_are_found_next_to_labels_that_are_known(tmp_path: Path, kind: str) -> None:
    file = FeatureFile.open(save(tmp_path, kind, label=SPECIES, filename=PATHS, id=IDS), Keys())
    assert (file.labels, file.names) == (SPECIES, PATHS)
    path = save(tmp_path, kind, species=SPECIES, filename=PATHS, label=IDS)
    chosen = FeatureFile.open(path, Keys("embedding" if kind == "lists" else None, "species"))
    assert (chosen.labels, chosen.names) == (SPECIES, PATHS)


def test_numbers_that_identify_rows_are_no_labels_of_lists(tmp_path: Path) -> None:
    file = FeatureFile.open(save(tmp_path, "lists", id=[4, 1, 2, 3], species=SPECIES), Keys())
    assert file.labels == SPECIES


@each_kind
@pytest.mark.parametrize(
    ("columns", "labels"),
    [
        ({"name": SPECIES}, SPECIES),  # the names of classes
        ({"name": ["ant", "bee", "cow", "dog"]}, ["ant", "bee", "cow", "dog"]),
        ({"id": SPECIES}, SPECIES),
        ({"sort": ["a/b", "a/c", "a/b", "a/c"]}, ["a/b", "a/c", "a/b", "a/c"]),
        ({"sort": ["ant", "bee", "cow", "a/d"]}, ["ant", "bee", "cow", "a/d"]),
        ({"id": IDS, "name": SPECIES}, SPECIES),
        ({"filename": PATHS}, None),
        ({"photo of it": PATHS}, None),
        ({"id": IDS}, None),
    ],
)
def test_values_decide_between_names_and_labels(
    tmp_path: Path, kind: str, columns: dict[str, list[str]], labels: list[str] | None
) -> None:
    assert FeatureFile.open(save(tmp_path, kind, **columns), Keys()).labels == labels


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_several_possible_labels_are_refused_without_the_names(tmp_path: Path, kind: str) -> None:
    site = ["s1", "s1", "s2", "s2"]
    with pytest.raises(DataError, match="the columns species and site could each be the labels; choose one"):
        FeatureFile.open(save(tmp_path, kind, filename=PATHS, species=SPECIES, site=site, id=IDS), Keys())
    with pytest.raises(DataError, match="the columns id and species could each be the labels; choose one"):
        FeatureFile.open(save(tmp_path, kind, id=site, species=SPECIES), Keys())
    with pytest.raises(
        DataError, match="column id is not numeric; choose it with --labels-key if it contains"
    ):
        FeatureFile.open(save(tmp_path, kind, id=site, label=SPECIES), Keys())


def test_empty_labels_of_a_column_that_its_values_decide_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("u,name\n1,ant\n2,bee\n3,\n4,ant\n")
    with pytest.raises(DataError, match=r"x\.csv, line 4: the label is empty"):
        FeatureFile.open(path, Keys())


def test_a_question_about_lists_does_not_offer_the_names(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        FeatureFile.open(save(tmp_path, "lists", path=PATHS, species=SPECIES, site=SPECIES, id=IDS), Keys())
    assert str(caught.value).endswith("--features-key ('embedding') and --labels-key ('species' or 'site')")


def test_info_shows_names(crnr: Runner) -> None:
    save(crnr.here, "lists", path=PATHS, species=SPECIES, id=IDS)
    found = json.loads(crnr("info", "x.parquet", "--json").out)
    assert {one["name"]: one["could_be"] for one in found["arrays"]} == {
        "embedding": ["features"],
        "path": ["names"],
        "species": ["labels"],
        "id": [],
    }
    assert (found["taken"]["labels"], found["taken"]["names"]) == ("species", "path")
    built = crnr("build", "x.parquet")
    assert (built.exit, built.out) == (0, "")
    assert built.err.startswith(
        "note: x.parquet: using the features 'embedding' (4 x 2) and the labels 'species'"
    )


@given(
    st.sampled_from(KINDS),
    st.text(st.characters(codec="ascii", categories=["L", "Zs"]), min_size=1),
    st.booleans(),
)
@settings(max_examples=40)
def test_a_column_of_paths_never_changes_the_labels(
    tmp_path_factory: pytest.TempPathFactory, kind: str, name: str, is_first: bool
) -> None:
    columns = {name: PATHS, "species": SPECIES} if is_first else {"species": SPECIES, name: PATHS}
    others = ("label", "labels", "class", "target", "u", "v", "species", "embedding", "")
    numbers = ("inf", "infinity", "nan")  # in the first line of a CSV, they mean that it has no header
    if name.strip().lower() in (*others, *numbers):
        return
    file = FeatureFile.open(save(tmp_path_factory.mktemp("x"), kind, **columns), Keys())
    assert file.labels == SPECIES
