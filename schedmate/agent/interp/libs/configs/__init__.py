"""Libraries that read configuration."""
