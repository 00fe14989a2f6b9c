"""Kubernetes through its API server: what is watched, and what schedmate does there."""
