BEGIN IMMEDIATE;

CREATE TABLE IF NOT EXISTS manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- One row a distinct rendering: jobs that read the same share their vector. Vectors of different
-- generations come from different embedders or renderings, and only one generation is in use.
CREATE TABLE IF NOT EXISTS texts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    generation INTEGER NOT NULL,
    text TEXT NOT NULL,
    vector BLOB NOT NULL,
    UNIQUE (generation, text)
);
-- Rows of one generation in order of id: what the search index has yet to take in.
CREATE INDEX IF NOT EXISTS texts_in_order ON texts (generation);

-- `document` is the whole JobRecord as JSON; the other columns are what it is looked up by.
-- A job of which nothing is known to compare it by has no text.
CREATE TABLE IF NOT EXISTS jobs (
    job_id TEXT PRIMARY KEY,
    text_id INTEGER REFERENCES texts (id),
    fingerprint TEXT NOT NULL,
    state TEXT NOT NULL,
    ended INTEGER NOT NULL,
    user TEXT,
    submit_time REAL,
    end_time REAL,
    document TEXT NOT NULL
);

CREATE INDEX IF NOT EXISTS jobs_by_text ON jobs (text_id, ended, end_time DESC, job_id);
CREATE INDEX IF NOT EXISTS jobs_by_fingerprint ON jobs (fingerprint, end_time DESC, job_id);
CREATE INDEX IF NOT EXISTS jobs_by_submit ON jobs (submit_time DESC, job_id);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state);

-- Jobs that have run, for which a run time is stated: all that an estimate may rest on. A job that
-- was cancelled in the queue is in none of these, however many there are; completed runs and those
-- cut short lie apart, so that neither hides the other. `table.py` asks in the same words, without
-- which SQLite does not use a partial index.
CREATE INDEX IF NOT EXISTS runs_by_text
    ON jobs (text_id, state = 'COMPLETED', ifnull(end_time, -9e99) DESC, job_id)
    WHERE ended = 1 AND CASE WHEN json_valid(document)
    THEN json_extract(document, '$.duration_s') > 0 END;
CREATE INDEX IF NOT EXISTS runs_by_fingerprint
    ON jobs (fingerprint, state = 'COMPLETED', ifnull(end_time, -9e99) DESC, job_id)
    WHERE ended = 1 AND CASE WHEN json_valid(document)
    THEN json_extract(document, '$.duration_s') > 0 END;
CREATE INDEX IF NOT EXISTS completed_by_submit ON jobs (submit_time DESC, job_id DESC)
    WHERE (state = 'COMPLETED') = 1 AND submit_time IS NOT NULL AND CASE WHEN json_valid(document)
    THEN json_extract(document, '$.duration_s') > 0 END;

-- What ended runs taught the experts on run times (`learning.py`), by part, and the runs that they
-- have yet to learn from. An update of a job that had ended teaches nothing new.
CREATE TABLE IF NOT EXISTS learned (key TEXT PRIMARY KEY, state BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unlearned (job_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS ended_anew AFTER INSERT ON jobs WHEN new.ended = 1
    BEGIN
        INSERT INTO unlearned SELECT new.job_id
        WHERE NOT EXISTS (SELECT 1 FROM unlearned WHERE job_id = new.job_id);
    END;
CREATE TRIGGER IF NOT EXISTS ended_now AFTER UPDATE ON jobs WHEN new.ended = 1 AND old.ended = 0
    BEGIN
        INSERT INTO unlearned SELECT new.job_id
        WHERE NOT EXISTS (SELECT 1 FROM unlearned WHERE job_id = new.job_id);
    END;
-- What an earlier version learned is of another form: all that ended is learned anew.
DELETE FROM learned;
INSERT OR IGNORE INTO unlearned SELECT job_id FROM jobs
    WHERE ended = 1;

COMMIT;
