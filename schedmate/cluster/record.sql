BEGIN IMMEDIATE;

-- All that happened, in order. `hash` covers the row and the `hash` before it, so that a row cannot
-- be changed, removed or put in without the rest showing it. `about` is a plan's id, or the subject
-- of an observation.
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    boot TEXT NOT NULL,
    uptime REAL NOT NULL,
    kind TEXT NOT NULL,
    about TEXT NOT NULL,
    actor TEXT NOT NULL,
    body TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE INDEX entries_about ON entries (about, kind);
CREATE INDEX entries_kind ON entries (kind);
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries
    BEGIN SELECT RAISE(ABORT, 'the record is append-only'); END;
CREATE TRIGGER entries_remain BEFORE DELETE ON entries
    BEGIN SELECT RAISE(ABORT, 'the record is append-only'); END;

-- What follows is derived from the entries, in the same transactions: plans as they stand now, and
-- actions that were begun, with what came of them.
CREATE TABLE plans (
    id TEXT PRIMARY KEY,
    proposed INTEGER NOT NULL REFERENCES entries (seq),
    moved INTEGER NOT NULL REFERENCES entries (seq),
    state TEXT NOT NULL,
    purpose TEXT NOT NULL,
    expires REAL
) WITHOUT ROWID;
CREATE INDEX plans_by_state ON plans (state, proposed);
CREATE INDEX plans_in_order ON plans (proposed);

CREATE TABLE attempts (
    id INTEGER PRIMARY KEY REFERENCES entries (seq),
    plan TEXT NOT NULL REFERENCES plans (id),
    step INTEGER NOT NULL,
    undo INTEGER NOT NULL,
    kind TEXT NOT NULL,
    answered INTEGER REFERENCES entries (seq),
    outcome TEXT
);
CREATE INDEX attempts_of_plan ON attempts (plan, undo, step);
CREATE INDEX attempts_by_kind ON attempts (kind);
CREATE INDEX attempts_open ON attempts (id) WHERE outcome IS NULL;

CREATE VIEW plan_status AS
    SELECT plans.*, first.body AS document,
        last.time, last.boot, last.uptime, last.actor, last.body AS move
    FROM plans JOIN entries AS first ON first.seq = proposed
    JOIN entries AS last ON last.seq = moved;
CREATE VIEW attempt_status AS
    SELECT attempts.*, first.body AS intent, first.time, first.boot, first.uptime, first.actor,
        coalesce(answer.body, '{}') AS answer
    FROM attempts JOIN entries AS first ON first.seq = attempts.id
    LEFT JOIN entries AS answer ON answer.seq = answered;

COMMIT;
