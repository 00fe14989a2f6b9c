"""`dataset_config.train` and `valid`: what is trained and validated on."""

from schedmate.agent.fields.dataset.choose import find

__all__ = ["find"]
