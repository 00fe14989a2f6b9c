CREATE TABLE IF NOT EXISTS manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL);

-- One row a distinct rendering: jobs that read the same share their vector.
CREATE TABLE IF NOT EXISTS texts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    text TEXT NOT NULL UNIQUE,
    vector BLOB NOT NULL
);

CREATE TABLE IF NOT EXISTS jobs (
    job_id TEXT PRIMARY KEY,
    text_id INTEGER NOT NULL REFERENCES texts (id),
    fingerprint TEXT NOT NULL,
    state TEXT NOT NULL,
    ended INTEGER NOT NULL,
    user TEXT,
    name TEXT,
    submit_time REAL,
    end_time REAL,
    document TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS jobs_by_text ON jobs (text_id, ended, end_time);
CREATE INDEX IF NOT EXISTS jobs_by_fingerprint ON jobs (fingerprint, end_time);
CREATE INDEX IF NOT EXISTS jobs_by_submit ON jobs (submit_time);
