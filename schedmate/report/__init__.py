"""Answers for people: text on a terminal, and HTML in one file, readable without JavaScript."""
