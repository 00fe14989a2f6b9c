"""The simulator: exact, event-driven, the same for the same trace and seed."""
