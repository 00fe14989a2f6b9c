-- What the dashboard shows: one row a job that the service has heard of. Times are seconds since
-- the epoch, lengths of time seconds. `estimate_s` to `reason` are of the last advice before the
-- job began; `progress` and `diagnosis` are JSON documents of `schedmate.jobs`.
CREATE TABLE IF NOT EXISTS jobs (
    job_id TEXT PRIMARY KEY,
    name TEXT,
    user TEXT,
    gpus INTEGER,
    nodes TEXT,
    state TEXT NOT NULL,
    submit_time REAL,
    start_time REAL,
    end_time REAL,
    duration_s REAL,
    heard REAL NOT NULL,
    advised REAL,
    estimate_s REAL,
    p10_s REAL,
    p90_s REAL,
    runs INTEGER,
    reason TEXT,
    checked INTEGER NOT NULL DEFAULT 0,
    log TEXT,
    batch_size INTEGER,
    followed INTEGER NOT NULL DEFAULT 0,
    tracked REAL,
    progress TEXT,
    diagnosed REAL,
    diagnosis TEXT
);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, heard);
CREATE INDEX IF NOT EXISTS jobs_by_failure ON jobs (diagnosed) WHERE diagnosed IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_by_check ON jobs (end_time) WHERE checked = 1;
