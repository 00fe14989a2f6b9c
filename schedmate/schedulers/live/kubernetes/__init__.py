"""Kubernetes through its API server: what schedmate watches and does there."""
