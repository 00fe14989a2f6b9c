"""Past jobs from files that clusters already have.

Every importer is a generator of `JobRecord`s that reads its stream a piece at a time. A row that
cannot be used is counted in the `ImportReport` given to it, never raised; a file that is not what
it should be raises `InputError`.
"""

from schedmate.retrieval.importers.detect import FORMATS, Format, detect_format
from schedmate.retrieval.importers.report import ImportReport
from schedmate.retrieval.importers.sacct_json import import_sacct_json
from schedmate.retrieval.importers.sacct_table import import_sacct_parsable
from schedmate.retrieval.importers.source import Source, open_source
from schedmate.retrieval.importers.tables import (
    import_csv,
    import_jsonl,
    parse_assignments,
    parse_mapping,
    read_mapping,
)

__all__ = [
    "FORMATS",
    "Format",
    "ImportReport",
    "Source",
    "detect_format",
    "import_csv",
    "import_jsonl",
    "import_sacct_json",
    "import_sacct_parsable",
    "open_source",
    "parse_assignments",
    "parse_mapping",
    "read_mapping",
]
