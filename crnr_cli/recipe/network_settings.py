"""Decide how a network is used where the user did not choose: by the files next to it, its name and shapes.

Nothing is guessed silently: an unknown setting is an error that names the option to set, and one note reports
all assumptions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Literal, NamedTuple

from crnr_cli.choices import NetworkOptions
from crnr_cli.errors import DataError, UsageError
from crnr_cli.models.catalog import KnownModel, model_at
from crnr_cli.models.preprocessing import Preparation, find_preparation
from crnr_cli.models.preset_guess import Guess, guess_preset
from crnr_cli.models.presets import OUTPUTS, PRESETS, Preset
from crnr_cli.wording import format_count

_PIXEL_TYPES = ("tensor(float)", "tensor(float16)", "tensor(double)", "tensor(uint8)")
_TEXT_TYPES = ("tensor(string)", "tensor(int64)", "tensor(int32)")
_BYTES = "tensor(uint8)"
_SCALING = ("crop", "filter", "mean", "std")

# Names of dimensions. PyTorch's exporters write the user's names, optimum writes the first kind.
_CHANNELS = {"num_channels", "channels", "channel", "c"}
_SIDES = ({"height", "image_height", "h"}, {"width", "image_width", "w"})
_PYTORCH_INPUT = "pixel_values"  # in every export of transformers, whose order is always the same


class Declared(NamedTuple):
    """An input or output as the model declares it; a dimension without a number has a name or None."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]

    @property
    def shape_text(self) -> str:
        return " x ".join("?" if length is None else str(length) for length in self.shape)


class Reasoned(NamedTuple):
    """A setting, and why it has this value."""

    value: Any
    why: str
    is_assumed: bool = False  # whether the user should be told


_CHOSEN = "chosen by an option"
# The assumptions, and the options to set instead.
_OPTIONS = {"layout": "--layout", "size": "--size", "output": "--extractor-output", "pool": "--pool"}


class _Source(NamedTuple):
    """Where crop, filter, mean and std come from."""

    kind: Literal["options", "preset", "file", "guess"]
    name: str  # of the preset or the file
    why: str
    values: dict[str, Any]
    preset: Preset | None = None

    @classmethod
    def of_preset(cls, kind: Literal["preset", "guess"], name: str, why: str) -> _Source:
        preset = PRESETS[name]
        return cls(kind, name, why, {setting: getattr(preset, setting) for setting in _SCALING}, preset)


class Decider:
    """Decides one setting after the other; `settled` holds the decided settings, by name, in this order."""

    def __init__(
        self, options: NetworkOptions, inputs: Sequence[Declared], outputs: Sequence[Declared]
    ) -> None:
        self.options = options
        self.inputs, self.outputs = inputs, outputs
        self.settled: dict[str, Reasoned] = {}

    def decide(self) -> None:
        """Decide all settings but `pool`, which needs one run of the network."""
        given = self._input()
        self.settled["input"] = Reasoned(given.name, "its only input")
        source = self._source([name for name in _SCALING if name not in self._fixed_scaling(given)])
        self.settled["preparation"] = Reasoned(source.name, source.why, source.kind in ("file", "guess"))
        self.settled["layout"] = self._layout(given)
        n_channels, height, width = self._image_shape(given)
        self.settled["channels"] = self._channels(n_channels, source)
        self.settled["size"] = self._size(width, height)
        if source.preset and isinstance(width, int) and isinstance(height, int):
            source.values["crop"] = source.preset.crop_for((width, height))
        self._scale(given, source)
        self.settled["output"] = self._output()

    def __getitem__(self, name: str) -> Any:
        return self.settled[name].value

    @cached_property
    def _known(self) -> KnownModel | None:
        return model_at(self.options.model)

    @cached_property
    def _guess(self) -> Guess | None:
        if self.options.preset:
            return None
        if self._known:
            return Guess(self._known.preset, f"the preset of {self._known.name}")
        return guess_preset(self.options.model)

    @cached_property
    def _config(self) -> Preparation | None:
        """The config file next to the model, unless the user chose a preset, which takes precedence."""
        return None if self.options.preset else find_preparation(self.options.model)

    @cached_property
    def _family(self) -> Preset | None:
        """The preset that describes the outputs, even if a config file describes how images are prepared."""
        if name := self.options.preset or (self._guess and self._guess.preset):
            return PRESETS[name]
        with suppress(DataError):  # it matters only where the file is needed
            if self._config and self._config.family:
                return PRESETS[self._config.family]
        return None

    def _input(self) -> Declared:
        path, inputs = self.options.model, self.inputs
        if len(inputs) != 1:
            names = ", ".join(given.name for given in inputs)
            with_text = any(given.type in _TEXT_TYPES for given in inputs)
            remedy = (
                "; use the part for images, which exports name vision_model.onnx"
                if with_text and any(len(given.shape) == 4 for given in inputs)
                else ""
            )
            raise DataError(
                f"{path}: takes {format_count(len(inputs), 'input')} ({names}), not one image{remedy}"
            )
        given = inputs[0]
        if given.type not in _PIXEL_TYPES or len(given.shape) != 4:
            kind = "text" if given.type in _TEXT_TYPES else "something else"
            raise DataError(
                f"{path}: expects {kind} and not images: the input {given.name} is {given.type} with "
                f"{len(given.shape)} dimensions, but images need 4"
            )
        return given

    def _layout(self, given: Declared) -> Reasoned:
        if self.options.layout:
            return Reasoned(self.options.layout, _CHOSEN)
        _, first, second, third = given.shape
        numbers = "by the numbers of the input's shape"
        if first in (1, 3):
            return Reasoned("nchw", numbers)
        if third in (1, 3):
            return Reasoned("nhwc", numbers)
        if not isinstance(first, int) and isinstance(second, int) and isinstance(third, int):
            return Reasoned("nchw", numbers)
        if not isinstance(third, int) and isinstance(first, int) and isinstance(second, int):
            return Reasoned("nhwc", numbers)
        names = [length.lower() if isinstance(length, str) else "" for length in given.shape]
        by_names = "by the names of the input's dimensions"
        if names[1] in _CHANNELS or (names[2] in _SIDES[0] and names[3] in _SIDES[1]):
            return Reasoned("nchw", by_names)
        if names[3] in _CHANNELS or (names[1] in _SIDES[0] and names[2] in _SIDES[1]):
            return Reasoned("nhwc", by_names)
        if all(not isinstance(length, int) for length in given.shape[1:]):
            if given.name == _PYTORCH_INPUT:
                return Reasoned("nchw", f"because the input is called {given.name}", is_assumed=True)
            if self._family and self._family.layout:
                return Reasoned(self._family.layout, "the layout of the preset", is_assumed=True)
        raise UsageError(
            f"{self.options.model}: the order of the input axes, {given.shape_text}, is not clear; "
            "choose --layout nchw or nhwc"
        )

    def _image_shape(self, given: Declared) -> tuple[Any, Any, Any]:
        """Return channels, height and width: numbers, or names if the model does not fix them."""
        _, first, second, third = given.shape
        return (first, second, third) if self["layout"] == "nchw" else (third, first, second)

    def _size(self, width: Any, height: Any) -> Reasoned:
        path, chosen = self.options.model, self.options.size

        def fits(size: tuple[int, int]) -> bool:
            return all(
                not isinstance(fixed, int) or fixed == wanted
                for fixed, wanted in zip((width, height), size, strict=True)
            )

        if chosen:
            if not fits(chosen):
                raise UsageError(
                    f"--size: {path} only takes images of {width}x{height}; leave the option out"
                )
            return Reasoned(chosen, _CHOSEN)
        if isinstance(width, int) and isinstance(height, int):
            return Reasoned((width, height), "the only size that the model takes")
        if self._config is not None:
            if fault := self._config.fault_of("size"):
                raise DataError(f"{self._config.path}: {fault}; choose the size of images with --size")
            if fits(self._config.settings["size"]):
                is_known = self["preparation"] == str(self._config.path)  # which is reported already
                why = f"according to {self._config.path}"
                return Reasoned(self._config.settings["size"], why, is_assumed=not is_known)
        if self._family and self._family.size and fits((self._family.size, self._family.size)):
            return Reasoned((self._family.size, self._family.size), "the size of the preset", is_assumed=True)
        raise UsageError(f"{path}: takes images of any size; choose one with --size, such as --size 224")

    def _fixed_scaling(self, given: Declared) -> dict[str, Reasoned]:
        """Return the settled scaling: the user's options, and mean 0 and std 1 for uint8 models."""
        found = {name: Reasoned(value, _CHOSEN) for name, value in self.options.scaling.items()}
        if given.type == _BYTES:
            why = "because the model takes bytes, and scales them itself"
            found |= {"mean": Reasoned((0.0,), why), "std": Reasoned((1.0,), why)}
        return found

    def _source(self, needed: list[str]) -> _Source:
        """Return the source of the needed settings."""
        if not needed:
            return _Source("options", "options", _CHOSEN, {})
        if self.options.preset:
            return _Source.of_preset("preset", self.options.preset, _CHOSEN)
        if (config := self._config) is not None:
            for name in needed:
                if fault := config.fault_of(name):
                    raise DataError(
                        f"{config.path}: {fault}; choose --{name}, or --extractor-preset, which overrides "
                        "this file"
                    )
            return _Source("file", str(config.path), f"according to {config.path}", dict(config.settings))
        if self._guess is None:
            raise UsageError(
                f"{self.options.model}: the preparation of images is not known; choose --extractor-preset: "
                f"{', '.join(PRESETS)}; or give {_join_words([f'--{name}' for name in needed])}"
            )
        guess = self._guess
        return _Source.of_preset("preset" if self._known else "guess", guess.preset, guess.why)

    def _scale(self, given: Declared, source: _Source) -> None:
        fixed = self._fixed_scaling(given)
        for name in _SCALING:
            self.settled[name] = fixed.get(name) or Reasoned(source.values[name], source.why)
            value = self[name]
            if self["channels"] == "grey" and name in ("mean", "std") and name not in self.options.scaling:
                # The mean of a preset's three values.
                self.settled[name] = self.settled[name]._replace(value=(sum(value) / len(value),))

    def _channels(self, count: Any, source: _Source) -> Reasoned:
        order = (
            Reasoned("grey", "because the model takes one channel")
            if count == 1
            else Reasoned("rgb", "the usual order")
        )
        if "channels" in source.values and count != 1:
            order = Reasoned(source.values["channels"], source.why)
        if self.options.channels:
            order = Reasoned(self.options.channels, _CHOSEN)
        if isinstance(count, int) and count != (1 if order.value == "grey" else 3):
            raise UsageError(
                f"{self.options.model}: takes images with {count} channels, not {order.value}; "
                "change --channels"
            )
        return order

    def _output(self) -> Reasoned:
        path, wanted = self.options.model, self.options.output
        names = [output.name for output in self.outputs]
        if wanted in names:
            return Reasoned(wanted, _CHOSEN)
        if wanted is None and len(names) == 1:
            return Reasoned(names[0], "its only output")
        preferred = self._family.outputs if self._family else OUTPUTS
        for name in preferred if wanted is None else ():
            if name in names:
                return Reasoned(name, "preferred to the others", is_assumed=True)
        which = "several outputs" if wanted is None else f"no output {wanted}"
        raise UsageError(f"{path}: has {which}; choose with --extractor-output: {', '.join(names)}")

    def decide_pool(self, shape: tuple[int, ...]) -> None:
        """Decide `pool` from the shape of the output for some images."""
        self.settled["pool"] = self._pool(shape)

    def _pool(self, shape: tuple[int, ...]) -> Reasoned:
        path, output, pool = self.options.model, self["output"], self.options.pool
        shape_text = " x ".join(map(str, shape[1:]))
        is_vector = math.prod(shape[1:]) in (0, max(shape[1:]))  # an empty output is rejected later
        is_map = f"{path}: the output {output} is a map of {shape_text} per image, not a vector"
        if pool is None:
            if is_vector:
                return Reasoned("none", "because the output is a vector")
            if len(shape) == 4:
                return Reasoned("mean", f"because the output is a map of {shape_text}", is_assumed=True)
            if self._family and self._family.has_class_token:
                return Reasoned("cls", "because the family has a class token", is_assumed=True)
            raise UsageError(f"{is_map}; --pool mean takes the mean of all tokens, --pool cls the first one")
        if pool == "none" and not is_vector:
            raise DataError(f"{is_map}; --pool mean averages it")
        if pool != "none" and len(shape) == 2:
            raise UsageError(
                f"--pool: the output {output} of {path} is already a vector of {shape_text}; leave the "
                "option out"
            )
        if pool == "cls" and len(shape) == 4:
            raise UsageError(
                f"--pool cls: the output {output} of {path} is a map of {shape_text}, without a class token; "
                "choose --pool mean"
            )
        return Reasoned(pool, _CHOSEN)

    def note(self) -> str | None:
        """Return a note with all assumptions for the user; None without any."""
        preparation = self.settled["preparation"]
        others = {name: self.settled[name] for name in _OPTIONS if self.settled[name].is_assumed}
        assumed = ", ".join(f"{name} {_text(one.value)}" for name, one in others.items())
        options = [_OPTIONS[name] for name in others]
        if not preparation.is_assumed and not others:
            return None
        if not preparation.is_assumed:
            return f"assumed about the network: {assumed}; if this is wrong, set {_join_words(options, 'or')}"
        if preparation.value in PRESETS:
            said = f"images are prepared with the preset {preparation.value}, a guess {preparation.why}"
        else:
            said = f"images are prepared {preparation.why}"
        if not others:
            return f"{said}; if the network expects another preparation, set --extractor-preset"
        options = ["--extractor-preset", *options]
        return f"{said}; assumed: {assumed}; if this is wrong, set {_join_words(options, 'or')}"


def _text(value: Any) -> str:
    return f"{value[0]}x{value[1]}" if isinstance(value, tuple) else str(value)


def _join_words(names: list[str], word: str = "and") -> str:
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
