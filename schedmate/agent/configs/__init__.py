"""Configuration files to trees of `Value`s whose every leaf knows its file and line."""
