"""Reading logs: files, standard input and directories to lines, blocks and attempts.

with open_log("job.out") as log:
    for file in log.files:
        for line in file.lines(first=100, last=200): ...
"""

from schedmate.logparse.reading.blocks import Attempt, Block, attempts, blocks
from schedmate.logparse.reading.folder import LogError
from schedmate.logparse.reading.lines import Line, parse_line, plain, refreshes
from schedmate.logparse.reading.log import Chunk, ErrorFile, Log, LogFile, Piece, follow, open_log

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
