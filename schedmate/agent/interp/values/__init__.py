"""What Python's operations do with values: a class a kind."""

from schedmate.agent.interp.values import (  # noqa: F401 (each declares its kinds)
    callables,
    foreign,
    instances,
    mappings,
    modules,
    paths,
    scalars,
    sequences,
    texts,
    types,
    unknowns,
)
