"""Parsers of the output of Slurm's commands, versions 22.05 to 26.05.

Nothing here runs a command. Text that users write (names, comments, submit lines) is read only
where it cannot be mistaken for something else: from JSON, or between delimiters that are drawn at
random for each call.
"""
