"""The outcome of a run: audit, metrics, files and text."""
