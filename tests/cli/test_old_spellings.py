"""Options that were renamed still have their old names, which no help shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.runner import Runner, declared_commands
from helpers.samples import draw_image, make_features, make_images

HIDDEN = {
    (command, parameter.opts[0]): parameter.hidden_names
    for command, declared in declared_commands().items()
    for parameter in declared.params
    if getattr(parameter, "hidden_names", ())
}
OF_FEATURE_FILES = ("build", "classify", "evaluate", "compare", "tune", "audit", "explain", "verify", "add")
OF_EXTRACTORS = ("build", "compare", "tune", "audit", "extract")
OF_GALLERIES = ("classify", "evaluate", "review", "explain", "add")


def test_every_old_name_is_known() -> None:
    assert {
        **{(command, "--images-from"): ["--pictures-from"] for command in ("evaluate", "review", "explain")},
        ("audit", "--images-from"): ["--pictures-from"],
        ("model check", "--image"): ["--picture"],
        ("audit", "--queries"): ["--against"],
        ("explain", "--compare-with"): ["--against"],
        ("verify", "--source"): ["--against"],
        ("split", "--train"): ["--gallery", "-g"],
        ("split", "--test"): ["--queries"],
        **{(command, "--samples-axis"): ["--samples"] for command in (*OF_FEATURE_FILES, "extract")},
        ("info", "--list-examples"): ["--samples"],
        **{(command, "--model-path"): ["--extractor"] for command in OF_GALLERIES},
        **{(command, "--extractor"): ["--model-path"] for command in OF_EXTRACTORS},
        **{(command, "--gray"): ["--grey"] for command in OF_EXTRACTORS},
        **{("tune", f"--try-{name}"): [f"--{name}"] for name in ("parts", "power", "pca", "neighbors")},
        ("remove", "--marked-in"): ["--from"],
        ("remove", "--example"): ["--sample"],
        ("model get", "--weights"): ["--from"],
        ("build", "--crc-weight"): ["--weight"],
        ("evaluate", "--min-answer-rate"): ["--min-coverage"],
    } == HIDDEN


@pytest.mark.parametrize("command", dict.fromkeys(command for command, _ in HIDDEN))
def test_no_name_has_two_meanings_in_a_command(command: str) -> None:
    parameters = declared_commands()[command].params
    names = [name for one in parameters for name in (*one.opts, *getattr(one, "hidden_names", ()))]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("command", dict.fromkeys(command for command, _ in HIDDEN))
def test_help_shows_the_new_name_alone(crnr: Runner, command: str) -> None:
    words = crnr(*command.split(), "--help-all").out.split()
    for (of, new), names in HIDDEN.items():
        if of == command:
            assert new in words
            assert not set(names) & {word.strip(",.;") for word in words}


@pytest.mark.parametrize("option", ["--images-from", "--pictures-from"])
def test_explain_takes_both_spellings(crnr: Runner, option: str) -> None:
    make_images(crnr.here / "gallery")
    draw_image(0, 9).save(crnr.here / "query.png")
    assert crnr("build", "gallery", "-q").exit == 0
    (crnr.here / "gallery").rename(crnr.here / "moved")
    outcome = crnr("explain", "query.png", "-o", "w.html", option, "moved")
    assert (outcome.exit, outcome.err) == (0, "wrote w.html\n")


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("audit a.npz --queries b.npz", "audit a.npz --against b.npz"),
        ("explain b.npz#1 --compare-with nn", "explain b.npz#1 --against nn"),
        ("verify --source a.npz", "verify --against a.npz"),
        ("classify b.npz --samples-axis rows", "classify b.npz --samples rows"),
        ("info --list-examples", "info --samples"),
        ("evaluate b.npz --min-answer-rate 1", "evaluate b.npz --min-coverage 1"),
        ("split images --train t --test u --dry-run", "split images -g t --queries u --dry-run"),
        ("remove gallery.h5 --marked-in x.csv --dry-run", "remove gallery.h5 --from x.csv --dry-run"),
        ("remove gallery.h5 --example a.npz#0 --dry-run", "remove gallery.h5 --sample a.npz#0 --dry-run"),
        ("extract images -o f.h5 --gray --json -q", "extract images -o f.h5 --grey --json -q"),
    ],
)
def test_both_names_do_the_same(crnr: Runner, new: str, old: str) -> None:
    make_features(crnr.here / "a.npz")
    make_features(crnr.here / "b.npz", seed=1)
    make_images(crnr.here / "images")
    Path("x.csv").write_text("path,label,remove\na.npz#0,ant,x\n")
    assert crnr("build", "a.npz", "-q").exit == 0
    first, second = crnr(*new.split()), crnr(*old.split())
    assert (first.exit, without_times(first.out)) == (second.exit, without_times(second.out))
    assert first.exit in (0, 1), first.err  # not a wrong usage
    assert "no such option" not in first.err + second.err


def without_times(text: str) -> object:
    if not text.startswith("{"):
        return text
    return {name: value for name, value in json.loads(text).items() if name != "seconds"}


@pytest.mark.slow
def test_tune_takes_both_names_and_no_value_for_tiles(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")

    def tried(*arguments: str) -> set[str | None]:
        outcome = crnr("tune", *arguments, "--extractor", "pixels", "--json", "-q")
        assert outcome.exit == 0, outcome.err
        return {trial["parts"] for trial in json.loads(outcome.out)["trials"]}

    assert tried("gallery") == {None}
    assert tried("gallery", "--try-parts", "2x2") == {"2x2"}
    assert tried("gallery", "--parts", "2x2") == tried("--try-parts=2x2", "gallery") == {"2x2"}
    # Alone, it is followed by what is no list of tiles.
    assert tried("gallery", "--try-parts") == tried("--try-parts", "gallery") == {None, "2x2", "4x4"}
