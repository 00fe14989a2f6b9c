"""What GPUs can do by their datasheets: peaks, memory, bandwidths, each with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from schedmate.base import data
from schedmate.base.errors import InputError, did_you_mean

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2}
"""Bytes of an activation; fp8 keeps activations in 16 bits and only multiplies in 8."""


@dataclass(frozen=True)
class DeviceSpec:
    """One GPU type."""

    name: str
    memory_bytes: float
    bandwidth: float
    """Memory bandwidth [bytes/s]."""
    processors: int
    """Streaming multiprocessors (compute units)."""
    peaks: Mapping[str, float]
    """Dense peak of matrix products by precision [FLOP/s]."""
    link: float
    """What one GPU sends within its node, one way [bytes/s]."""
    source: str = ""

    def runs_as(self, precision: str) -> str:
        """The precision in which matrix products of `precision` run here.

        A GPU without units for fp8 runs it as bf16; one without units for 16 bits or tf32 as fp32.
        """
        supported = precision
        if supported == "fp8" and supported not in self.peaks:
            supported = "bf16"
        return supported if supported in self.peaks else "fp32"

    def peak(self, precision: str) -> float:
        """Peak of matrix products [FLOP/s]; see `runs_as` for a precision without units."""
        return self.peaks[self.runs_as(precision)]

    def roofline(self, intensity: float, precision: str) -> float:
        """R of Equation 2: attainable speed [FLOP/s] at an intensity [FLOP/byte]."""
        return min(self.peak(precision), intensity * self.bandwidth)


def normalised_name(name: str) -> str:
    """A name without case and punctuation, as names are compared."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def bundled_devices() -> dict[str, DeviceSpec]:
    """The bundled GPU types by name."""
    return {entry["name"]: _spec(entry) for entry in _entries()}


@cache
def _aliases() -> dict[str, str]:
    return {
        normalised_name(alias): entry["name"]
        for entry in _entries()
        for alias in (entry["name"], *entry.get("aliases", ()))
    }


def find_device(name: str, describing: str = "") -> DeviceSpec:
    """The GPU type with a name or alias.

    `describing` is the caller's option for a datasheet (`described`), if it has one. Raises
    `InputError` with the nearest known names if there is no such type.
    """
    bundled_name = _aliases().get(normalised_name(name))
    if bundled_name is None:
        near = did_you_mean(name, bundled_devices())
        another = f", and `{describing} NAME:memory=80,bandwidth=3350,fp16=989` describes another"
        raise InputError(
            f"unknown GPU type {name!r}{near}; `schedmate parallel devices` lists the known ones"
            f"{another if describing else ''}."
        )
    return bundled_devices()[bundled_name]


def assumed_memory_variant(name: str) -> str | None:
    """The assumed memory variant of a GPU name without a memory size; None for one with a size."""
    bundled_name = _aliases().get(normalised_name(name))
    if bundled_name is None or normalised_name(name) == normalised_name(bundled_name):
        return None
    devices, family = bundled_devices(), normalised_name(name)
    others = [
        one
        for one in devices.values()
        if normalised_name(one.name).startswith(family)
        and one.memory_bytes != devices[bundled_name].memory_bytes
    ]
    if not others:
        return None
    memory = f"{devices[bundled_name].memory_bytes / 1e9:g} GB"
    return (
        f"{name} is taken for {bundled_name} ({memory}); write {others[0].name} for the other one."
    )


def canonical_name(name: str) -> str:
    """The known name of a GPU type, also for an alias; else the name in the form in which it is
    compared."""
    return _aliases().get(normalised_name(name), normalised_name(name))


def parse_device(text: str, option: str = "--device") -> DeviceSpec:
    """A GPU type by its datasheet: `NAME:memory=GB,bandwidth=GB/s,fp16=TFLOP/s[,link=GB/s]`.

    Raises `InputError` where a number is missing or none.
    """
    name, _, rest = text.partition(":")
    values: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, _, number = part.partition("=")
        try:
            values[key.strip().lower()] = float(number)
        except ValueError:
            raise InputError(f"{option} {text!r}: {part!r} is not NAME=NUMBER") from None
    peaks = {key: values[key] for key in PRECISIONS if key in values}
    missing = [key for key in ("memory", "bandwidth") if key not in values]
    if not name or missing or not peaks:
        need = ", ".join(missing or ["a peak such as fp16=312"])
        raise InputError(
            f"{option} {text!r} lacks {need}: say NAME:memory=GB,bandwidth=GB/s,fp16=TFLOP/s"
        )
    if not all(0 < value < 1e9 for value in values.values()):
        raise InputError(f"{option} {text!r}: every number must be above 0")
    half = peaks.get("bf16", peaks.get("fp16"))
    if half is not None:  # units for one 16-bit format have the other as well
        peaks.setdefault("fp16", half)
        peaks.setdefault("bf16", half)
    peaks.setdefault("fp32", min(peaks.values()) / 8)
    return _spec(
        {
            "name": name,
            "memory": values["memory"],
            "bandwidth": values["bandwidth"],
            "processors": values.get("processors", 100),
            "tflops": peaks,
            "link": values.get("link", 31.5),
            "source": option,
        }
    )


def _entries() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = data.load("schedulers/parallelism/devices.yaml")["devices"]
    return entries


def _spec(entry: Mapping[str, Any]) -> DeviceSpec:
    return DeviceSpec(
        entry["name"],
        entry["memory"] * 1e9,
        entry["bandwidth"] * 1e9,
        int(entry["processors"]),
        {precision: tera * 1e12 for precision, tera in entry["tflops"].items()},
        entry["link"] * 1e9,
        entry["source"],
    )
