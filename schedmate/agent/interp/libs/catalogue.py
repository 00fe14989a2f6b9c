"""All plugins."""

from __future__ import annotations

from functools import cache

from schedmate.agent.interp.libs import (
    dassl,
    documented,
    filesystem,
    hydra,
    importing,
    iteration,
    lightning,
    patterns,
    processes,
    running,
    signatures,
    standard,
    structures,
)
from schedmate.agent.interp.libs.cli import (
    absl,
    argparse,
    choices,
    click,
    dataclass_parsers,
    functions,
    jsonargparse,
    ready_made,
    records,
    sacred,
    typer,
)
from schedmate.agent.interp.libs.configs import (
    attribute_dicts,
    files,
    gin,
    hocon,
    lazy,
    methods,
    mmengine,
    omegaconf,
    torchpack,
)
from schedmate.agent.interp.plugins import Registry

_MODULES = (
    standard, signatures, structures, filesystem, importing, iteration, patterns,
    argparse, ready_made, records, choices, click, dataclass_parsers, functions, jsonargparse,
    typer, absl, sacred,
    attribute_dicts, files, gin, hocon, lazy, methods, mmengine, omegaconf, torchpack,
    hydra, dassl, running, lightning, processes, documented,
)  # fmt: skip


@cache
def registry() -> Registry:
    """The plugins that come with schedmate."""
    return Registry(module.PLUGIN for module in _MODULES)
