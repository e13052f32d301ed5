"""A name in its other Unicode form is the same name, for every command that compares names."""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from helpers.runner import Outcome, Runner
from helpers.samples import draw_image, make_images

FORMS = ("NFC", "NFD")
Spell = Callable[[str], str]  # a text in the Unicode form that the command is given
Command = Callable[[Runner, str, Spell], Outcome]


def in_form(form: str) -> Spell:
    return lambda text: unicodedata.normalize(form, text)


class_names = st.text("aoéñÅ한ộ", min_size=1, max_size=4).filter(
    lambda text: in_form("NFC")(text) != in_form("NFD")(text)
)


_TIMES = re.compile(r'"(seconds|\w+_seconds|query_ms)": [\d.e-]+|\b\d+\.\d+ s\b')


def edit(file: str, spell: Spell) -> None:
    """Write a table again, as a program on a system with the other form would."""
    Path(file).write_text(spell(Path(file).read_text("utf-8")), "utf-8")


def write(file: str, *lines: str) -> str:
    Path(file).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return file


def folder(name: str, spell: Spell) -> str:
    """Rename the class folder below another one, as an unpacked archive may have it."""
    Path(name).rename(spell(name))
    return name.partition("/")[0]


def labels_table(spell: Spell) -> str:
    rows = [f"{path.as_posix()},{path.parts[1]}" for path in sorted(Path("q").rglob("*.png"))]
    return write("labels.csv", "path,label", *map(spell, rows))


def corrected(crnr: Runner, name: str, spell: Spell) -> Outcome:
    rows = ("path,label,corrected,when", f"one.png,ant,{spell(name)},")
    return crnr("add", "g.h5", "--corrections", write("c.csv", *rows), "-q")


def corrected_by_its_path(crnr: Runner, name: str, spell: Spell) -> Outcome:
    rows = ("path,label,corrected,when", f"{spell(f's/{name}/0.png')},{name},ant,")
    return crnr("add", "g.h5", "--corrections", write("c.csv", *rows), "-q")


def scored_by_corrections(crnr: Runner, name: str, spell: Spell) -> Outcome:
    rows = [f"{path.as_posix()},ant,{path.parts[1]}," for path in sorted(Path("q").rglob("*.png"))]
    write("c.csv", "path,label,corrected,when", *map(spell, rows))
    return crnr("evaluate", "out.csv", "--corrections", "c.csv", "--json")


def scored_as_edited(crnr: Runner, name: str, spell: Spell) -> Outcome:
    """Return two tables of one run, of which one was edited on another system."""
    shutil.copy("out.csv", "more.csv")
    edit("more.csv", spell)
    return crnr("evaluate", "out.csv", "more.csv", "--json")


def removed_by_marks(crnr: Runner, name: str, spell: Spell) -> Outcome:
    write("audit.csv", "path,remove", spell(f"s/{name}/0.png,x"))
    return crnr("remove", "g.h5", "--marked-in", "audit.csv")


def sorted_by_edited_table(crnr: Runner, name: str, spell: Spell) -> Outcome:
    edit("out.csv", spell)
    return crnr("sort", "out.csv", "sorted", "--json")


def extracted_again(crnr: Runner, name: str, spell: Spell) -> Outcome:
    assert crnr("extract", "s", "-o", "f.h5", "-q") == Outcome(0, "", "")
    return crnr("extract", folder(f"s/{name}", spell), "-o", "f.h5", "--update", "--json", "-q")


COMMANDS: dict[str, Command] = {
    "classify": lambda crnr, name, spell: crnr("classify", folder(f"q/{name}", spell), "-g", "g.h5", "-q"),
    "evaluate queries": lambda crnr, name, spell: crnr(
        "evaluate", folder(f"q/{name}", spell), "-g", "g.h5", "--json", "-q"
    ),
    "evaluate --labels": lambda crnr, name, spell: crnr(
        "evaluate", "out.csv", "--labels", labels_table(spell), "--json"
    ),
    "evaluate --corrections": scored_by_corrections,
    "evaluate two tables": scored_as_edited,
    "evaluate --outsiders": lambda crnr, name, spell: crnr(
        "evaluate", "out.csv", "--outsiders", spell(f"q/{name}"), "--json"
    ),
    "add a folder": lambda crnr, name, spell: crnr("add", "g.h5", folder(f"q/{name}", spell), "-q"),
    "add the folder of a class": lambda crnr, name, spell: crnr(
        "add", "g.h5", f"{folder(f'q/{name}', spell)}/{spell(name)}", "-q"
    ),
    "add --class": lambda crnr, name, spell: crnr("add", "g.h5", "one.png", "--class", spell(name), "-q"),
    "add what is there": lambda crnr, name, spell: crnr("add", "g.h5", folder(f"s/{name}", spell), "-q"),
    "add --corrections": corrected,
    "add --corrections by path": corrected_by_its_path,
    "remove --class": lambda crnr, name, spell: crnr("remove", "g.h5", "--class", spell(name), "-q"),
    "remove --example": lambda crnr, name, spell: crnr(
        "remove", "g.h5", "--example", spell(f"s/{name}/0.png"), "-q"
    ),
    "remove --marked-in": removed_by_marks,
    "rename": lambda crnr, name, spell: crnr("rename", "g.h5", spell(name), "new", "-q"),
    "rename to itself": lambda crnr, name, spell: crnr("rename", "g.h5", name, spell(name), "-q"),
    "rename to what is there": lambda crnr, name, spell: crnr("rename", "g.h5", "ant", spell(name), "-q"),
    "rename --merge": lambda crnr, name, spell: crnr("rename", "g.h5", "ant", spell(name), "--merge", "-q"),
    "build --update": lambda crnr, name, spell: crnr(
        "build", folder(f"s/{name}", spell), "-o", "g.h5", "--update", "--json", "-q"
    ),
    "verify": lambda crnr, name, spell: crnr(
        "verify", "g.h5", "--source", folder(f"s/{name}", spell), "--json"
    ),
    "extract --update": extracted_again,
    "compare": lambda crnr, name, spell: crnr(
        "compare", "s", "--test", folder(f"q/{name}", spell), "--json", "-q"
    ),
    "sort": sorted_by_edited_table,
}


@pytest.fixture(scope="module")
def galleries(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with a gallery that has a class of this name, its source, queries and their answers."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = here = tmp_path_factory.mktemp("same")
            with chdir(here):
                make_images(Path("s"), ("ant", name), per_class=3)
                make_images(Path("q"), ("ant", name), per_class=2, first=5)
                draw_image(1, 9).save("one.png")
                crnr = Runner(here)
                assert crnr("build", "s", "-o", "g.h5", "-q") == Outcome(0, "", "")
                assert crnr("classify", "q", "-g", "g.h5", "-o", "out.csv", "-q") == Outcome(0, "", "")
        return made[name]

    return make


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@settings(max_examples=2, phases=(Phase.explicit, Phase.reuse, Phase.generate))  # shrinking takes too long
@given(name=class_names, form=st.sampled_from(FORMS))
def test_either_form_is_the_same_name(
    galleries: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
    command: str,
    name: str,
    form: str,
) -> None:
    name = in_form(form)(name)
    outcomes = []
    for given_form in FORMS:
        here = tmp_path_factory.mktemp("form") / "here"
        shutil.copytree(galleries(name), here)
        with chdir(here):
            crnr = Runner(here)
            outcome = COMMANDS[command](crnr, name, in_form(given_form))
            samples = crnr("info", "g.h5", "--list-examples").out
        said = (in_form("NFC")(text) for text in (outcome.out, outcome.err, samples))
        # Files are listed in the order of their names, which is another one in the other form.
        outcomes.append((outcome.exit, *(sorted(_TIMES.sub("", text).splitlines()) for text in said)))
    assert outcomes[0] == outcomes[1]
