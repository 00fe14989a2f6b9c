"""Libraries that read command lines."""
