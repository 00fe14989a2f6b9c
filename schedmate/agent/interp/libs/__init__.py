"""Models of libraries, by what they are called."""
