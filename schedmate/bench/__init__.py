"""The public benchmark: what training jobs run, read from a repository and a launch command."""
