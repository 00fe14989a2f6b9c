"""Partial evaluation of a program: followed over values that remember their origin, never run."""
