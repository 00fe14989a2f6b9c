"""Slurm: what its commands print (`reading/`), and what schedmate does with them."""
