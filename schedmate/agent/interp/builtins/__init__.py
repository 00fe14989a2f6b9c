"""Python's own functions and classes, as far as plain data reaches."""
