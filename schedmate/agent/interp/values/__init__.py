"""What Python's operations do with values: a class a kind."""
