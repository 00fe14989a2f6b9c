"""`schedmate quota`: a function, whose arguments Typer reads; a `typer.Typer` is a group."""

from __future__ import annotations

GPU_HOURS = {"alice": 1200, "bob": 80}


def quota(user: str) -> None:
    """Show the GPU hours that a user has left."""
    print(f"{user}: {GPU_HOURS.get(user, 0)} GPU hours")
