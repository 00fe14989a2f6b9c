"""Repository and launch command to metadata: static analysis, then a model for the rest."""
