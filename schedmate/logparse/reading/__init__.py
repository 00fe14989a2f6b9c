"""Reading logs: files, standard input and directories to lines, blocks and attempts.

with open_log("job.out") as log:
    for file in log.files:
        for line in file.lines(first=100, last=200): ...
"""

from schedmate.logparse.reading.attempts import Attempt, attempts
from schedmate.logparse.reading.blocks import Block, blocks
from schedmate.logparse.reading.file import Chunk, LogFile, Piece
from schedmate.logparse.reading.follow import follow
from schedmate.logparse.reading.inside import LogError
from schedmate.logparse.reading.lines import Line, parse_line, plain, refreshes
from schedmate.logparse.reading.log import ErrorFile, Log, open_log

__all__ = [
    "Attempt",
    "Block",
    "Chunk",
    "ErrorFile",
    "Line",
    "Log",
    "LogError",
    "LogFile",
    "Piece",
    "attempts",
    "blocks",
    "follow",
    "open_log",
    "parse_line",
    "plain",
    "refreshes",
]
