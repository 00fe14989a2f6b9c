CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    mark TEXT NOT NULL UNIQUE,
    request TEXT NOT NULL,
    submitted REAL NOT NULL,
    queued REAL NOT NULL,
    state TEXT NOT NULL DEFAULT 'PENDING',
    restarts INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    exclude TEXT NOT NULL DEFAULT '[]',
    profile TEXT,
    profiled INTEGER NOT NULL DEFAULT 0,
    evictions INTEGER NOT NULL DEFAULT 0,
    preemptions INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    service_s REAL NOT NULL DEFAULT 0,
    not_before REAL NOT NULL DEFAULT 0,
    why TEXT NOT NULL DEFAULT '',
    changed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state);
CREATE INDEX IF NOT EXISTS jobs_by_change ON jobs (changed);
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job INTEGER NOT NULL REFERENCES jobs (id),
    restart INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'starting',
    places TEXT NOT NULL,
    beside INTEGER,
    folder TEXT NOT NULL,
    decided REAL NOT NULL,
    started REAL,
    ended REAL,
    outcome TEXT NOT NULL DEFAULT '',
    report TEXT NOT NULL DEFAULT '{}',
    stop TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS runs_by_job ON runs (job);
CREATE INDEX IF NOT EXISTS runs_by_end ON runs (ended);
CREATE INDEX IF NOT EXISTS runs_open ON runs (state) WHERE state <> 'ended';
CREATE TABLE IF NOT EXISTS drains (node TEXT PRIMARY KEY, reason TEXT NOT NULL, at REAL NOT NULL);
