"""What came of a run: proved, counted, written down and told."""
