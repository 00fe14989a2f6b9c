-- A history that several schedulers write. `change` grows with every write of a job, in the order of
-- the commits, because writers hold one lock: who has read up to a number has missed nothing.
CREATE TABLE IF NOT EXISTS schedmate_manifest (key text PRIMARY KEY, value text NOT NULL);
CREATE SEQUENCE IF NOT EXISTS schedmate_change;
CREATE TABLE IF NOT EXISTS schedmate_texts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    generation integer NOT NULL,
    digest bytea NOT NULL,
    text text NOT NULL,
    vector vector NOT NULL,
    UNIQUE (generation, digest)
);
CREATE TABLE IF NOT EXISTS schedmate_jobs (
    job_id text PRIMARY KEY,
    text_id bigint REFERENCES schedmate_texts (id),
    fingerprint text NOT NULL,
    state text NOT NULL,
    ended boolean NOT NULL,
    username text,
    submit_time double precision,
    end_time double precision,
    document text NOT NULL,
    change bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS schedmate_jobs_by_change ON schedmate_jobs (change);
CREATE INDEX IF NOT EXISTS schedmate_jobs_by_text ON schedmate_jobs (text_id);
