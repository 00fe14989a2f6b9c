"""Configuration files to trees of `Value`s whose every leaf knows its file and line."""

from schedmate.agent.configs.detectron import read_detectron
from schedmate.agent.configs.files import ConfigError
from schedmate.agent.configs.gin import parse_gin
from schedmate.agent.configs.hydra import HydraResult, compose_hydra
from schedmate.agent.configs.interpolation import resolve_interpolations
from schedmate.agent.configs.reader import read_config, read_hocon_text
from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.trees import merge, set_dotted

__all__ = [
    "ConfigError",
    "HydraResult",
    "compose_hydra",
    "merge",
    "parse_gin",
    "parse_scalar",
    "read_config",
    "read_detectron",
    "read_hocon_text",
    "resolve_interpolations",
    "set_dotted",
]
