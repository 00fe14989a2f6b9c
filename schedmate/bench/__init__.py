"""The public benchmark: what jobs train, by their code; why they failed, by their logs."""
