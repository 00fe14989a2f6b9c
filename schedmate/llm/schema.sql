-- Every call of a language model, what endpoints were found to accept, and replies worth keeping.

CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,            -- [s since epoch]
    purpose TEXT NOT NULL,         -- what the call was for: extract, metrics, failure, doctor
    job TEXT,                      -- the unit of the per-job budget
    endpoint TEXT NOT NULL,
    model TEXT NOT NULL,
    verdict TEXT NOT NULL,         -- schedmate.base.errors.Verdict
    input_tokens INTEGER NOT NULL, -- as the server counted them, or an estimate of the prompt
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL, -- of the input, found in the server's prefix cache
    seconds REAL NOT NULL,
    attempts INTEGER NOT NULL,     -- requests tried; 0 when the reply came from the cache below
    cost REAL NOT NULL,            -- in the currency of the settings' prices
    detail TEXT                    -- one sentence on a failure
);                                 -- and `sent`: of the attempts, those that reached a server
CREATE INDEX IF NOT EXISTS calls_by_time ON calls (time);
CREATE INDEX IF NOT EXISTS calls_by_job ON calls (job, time);

CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY,          -- SHA-256 over endpoint, model, messages and options
    time REAL NOT NULL,
    reply TEXT NOT NULL            -- the message as JSON
);

CREATE TABLE IF NOT EXISTS capabilities (
    endpoint TEXT NOT NULL,
    model TEXT NOT NULL,
    method TEXT NOT NULL,          -- how this endpoint gives structured output
    time REAL NOT NULL,
    PRIMARY KEY (endpoint, model)
);

CREATE TABLE IF NOT EXISTS secret (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    bytes BLOB NOT NULL            -- makes fences of untrusted text that nobody else can guess
);
