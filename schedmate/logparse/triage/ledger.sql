-- What was triaged. Verdicts hold for one content under one version of the rules; templates and root
-- causes are remembered for good, with the batch that showed them first, or each batch; `done` are the
-- logs of the batch under way that have been read.
CREATE TABLE IF NOT EXISTS batch (
    id INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    started REAL NOT NULL,
    finished REAL
);
CREATE TABLE IF NOT EXISTS verdict (
    content BLOB PRIMARY KEY,
    version TEXT NOT NULL,
    document TEXT NOT NULL,
    templates BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS done (
    key TEXT PRIMARY KEY,
    result TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cause (
    id TEXT NOT NULL,
    batch INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    log TEXT NOT NULL,
    line INTEGER,
    PRIMARY KEY (id, batch)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS template (
    id INTEGER PRIMARY KEY,
    text TEXT NOT NULL,
    batch INTEGER NOT NULL,
    log TEXT NOT NULL,
    line INTEGER NOT NULL
);
