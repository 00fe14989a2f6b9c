"""Arena (EuroSys'26): elastic scheduling of large models over GPU types, by planned throughput."""

from schedmate.schedulers.policies.arena.policy import Arena

__all__ = ["Arena"]
