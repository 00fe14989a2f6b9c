"""Configuration files to trees of `Value`s whose every leaf knows its file and line."""

from schedmate.agent.configs.files import ConfigError
from schedmate.agent.configs.reader import read_config
from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.trees import merge, set_dotted

__all__ = ["ConfigError", "merge", "parse_scalar", "read_config", "set_dotted"]
