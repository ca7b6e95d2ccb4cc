-- Release 0.6. {schema} stands for the schema's name.

-- Signals to a task that no wait of its code has taken yet.
ALTER TABLE {schema}.task ADD COLUMN inbox integer NOT NULL DEFAULT 0;

-- What others send to a task: signals, answers to its questions and callbacks, requests. Kept until the task is purged.
CREATE TABLE {schema}.signal (
    task_no bigint NOT NULL REFERENCES {schema}.task ON DELETE CASCADE,
    number integer NOT NULL,        -- 1, 2, ... in the order of their commits
    name text NOT NULL,             -- of the waits that may take it
    signal_id text NOT NULL,        -- given by the sender; sent again it changes nothing
    value text NOT NULL,            -- JSON text
    sent_by text NOT NULL,
    sent_at bigint NOT NULL,
    step integer,                   -- ordinal of the wait that took it; null: it is in the inbox
    wants_reply boolean NOT NULL,   -- a request
    reply text,                     -- JSON text; null: there is none yet
    replied_at bigint,
    PRIMARY KEY (task_no, number)
);
CREATE UNIQUE INDEX signal_id ON {schema}.signal (task_no, signal_id);
CREATE INDEX signal_inbox ON {schema}.signal (task_no, number) WHERE step IS NULL;
CREATE INDEX signal_aside ON {schema}.signal (sent_at) WHERE step = 0;

-- Who may read the history, or add to it, may do so with signals; who runs tasks also keeps what becomes of them.
DO $rights$
DECLARE one record;
BEGIN
    FOR one IN SELECT given.grantee::regrole AS role, string_agg(given.privilege_type, ', ') AS rights,
                      bool_or(given.privilege_type = 'INSERT') AS runs
                 FROM pg_catalog.pg_class AS c, LATERAL pg_catalog.aclexplode(c.relacl) AS given
                WHERE c.oid = '{schema}.history'::regclass AND given.grantee NOT IN (0, c.relowner)
                  AND given.privilege_type IN ('SELECT', 'INSERT', 'DELETE')
                GROUP BY given.grantee
    LOOP
        EXECUTE format('GRANT %s ON {schema}.signal TO %s', one.rights, one.role);
        IF one.runs THEN
            EXECUTE format('GRANT UPDATE (step, reply, replied_at) ON {schema}.signal TO %s', one.role);
        END IF;
    END LOOP;
END
$rights$;

-- The latest value that a task (ordinal 0) or a step has published, for those who look at the task.
CREATE TABLE {schema}.published (
    task_no bigint NOT NULL REFERENCES {schema}.task ON DELETE CASCADE,
    ordinal integer NOT NULL,
    value text,                     -- JSON text; null: only a step has published
    number bigint NOT NULL,         -- 1, 2, ... of the values that were written here
    at bigint NOT NULL,             -- when it was published
    fence bigint NOT NULL,          -- of the attempt that published it; 0: workflow code did
    status_at bigint,               -- of ordinal 0: when the last status of kind progress may be read
    PRIMARY KEY (task_no, ordinal)
);

-- Who may read the history, or add to it, may do so with what is published; who runs tasks also replaces it.
DO $rights$
DECLARE one record;
BEGIN
    FOR one IN SELECT given.grantee::regrole AS role, string_agg(given.privilege_type, ', ') AS rights,
                      bool_or(given.privilege_type = 'INSERT') AS runs
                 FROM pg_catalog.pg_class AS c, LATERAL pg_catalog.aclexplode(c.relacl) AS given
                WHERE c.oid = '{schema}.history'::regclass AND given.grantee NOT IN (0, c.relowner)
                  AND given.privilege_type IN ('SELECT', 'INSERT', 'DELETE')
                GROUP BY given.grantee
    LOOP
        EXECUTE format('GRANT %s ON {schema}.published TO %s', one.rights, one.role);
        IF one.runs THEN
            EXECUTE format('GRANT UPDATE ON {schema}.published TO %s', one.role);
        END IF;
    END LOOP;
END
$rights$;

-- Tags: names with a value each, by which operators find a task.
ALTER TABLE {schema}.task ADD COLUMN tags text;
ALTER TABLE {schema}.task ADD COLUMN submitted_tags text;

-- Tasks that the code of others has started, their children.
ALTER TABLE {schema}.task ADD COLUMN parent_step bigint;
ALTER TABLE {schema}.task ADD COLUMN depth integer NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX task_parent_step ON {schema}.task (parent_step) WHERE parent_step IS NOT NULL;
CREATE INDEX task_child_ended ON {schema}.task (ended_at) WHERE parent_step IS NOT NULL AND ended_at IS NOT NULL;

-- Forks: tasks that do a part of another one again.
ALTER TABLE {schema}.task ADD COLUMN forked_from bigint;
CREATE INDEX task_forked ON {schema}.task (forked_from) WHERE forked_from IS NOT NULL;

-- Batches of a convoy: which task handles a message, and when a batch that is gathered is full.
ALTER TABLE {schema}.task ADD COLUMN batch_no bigint;
CREATE INDEX task_batch ON {schema}.task (batch_no) WHERE batch_no IS NOT NULL;
ALTER TABLE {schema}.convoy ADD COLUMN full_at bigint;
CREATE INDEX convoy_gathers ON {schema}.convoy (convoy_no) WHERE full_at IS NOT NULL;

-- The version of the code that began a task: only processes with that code continue it.
ALTER TABLE {schema}.task ADD COLUMN code_version text;

-- Tags of tasks, to find tasks by them. A trigger keeps it as the column tags of their tasks says.
CREATE TABLE {schema}.task_tag (
    name text NOT NULL,
    value text NOT NULL,
    tagged_no bigint NOT NULL REFERENCES {schema}.task ON DELETE CASCADE,
    PRIMARY KEY (name, value, tagged_no)
);
CREATE INDEX task_tag_of ON {schema}.task_tag (tagged_no);

-- Who may read tasks may read their tags; who may write them, also those, by the trigger.
DO $rights$
DECLARE one record;
BEGIN
    FOR one IN SELECT given.grantee::regrole AS role, bool_or(given.privilege_type = 'INSERT') AS writes
                 FROM pg_catalog.pg_class AS c, LATERAL pg_catalog.aclexplode(c.relacl) AS given
                WHERE c.oid = '{schema}.task'::regclass AND given.grantee NOT IN (0, c.relowner)
                  AND given.privilege_type IN ('SELECT', 'INSERT')
                GROUP BY given.grantee
    LOOP
        EXECUTE format('GRANT SELECT ON {schema}.task_tag TO %s', one.role);
        IF one.writes THEN
            EXECUTE format('GRANT INSERT, DELETE ON {schema}.task_tag TO %s', one.role);
        END IF;
    END LOOP;
END
$rights$;

-- Workflows that operators have paused for new tasks.
CREATE TABLE {schema}.workflow_pause (
    app text NOT NULL,
    workflow text NOT NULL,
    state text NOT NULL,            -- paused, refusing, resuming
    paused_by text NOT NULL,
    pause_reason text NOT NULL,
    paused_at bigint NOT NULL,
    PRIMARY KEY (app, workflow)
);

-- Who may read breakers, or change them, may do so with paused workflows.
DO $rights$
DECLARE one record;
BEGIN
    FOR one IN SELECT given.grantee::regrole AS role, string_agg(DISTINCT given.privilege_type, ', ') AS rights
                 FROM pg_catalog.pg_class AS c, LATERAL pg_catalog.aclexplode(c.relacl) AS given
                WHERE c.oid = '{schema}.breaker'::regclass AND given.grantee NOT IN (0, c.relowner)
                  AND given.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
                GROUP BY given.grantee
    LOOP
        EXECUTE format('GRANT %s ON {schema}.workflow_pause TO %s', one.rights, one.role);
    END LOOP;
END
$rights$;

-- Questions to operators are alerts of their own cause; this is the row that waits for the answer.
ALTER TABLE {schema}.alert ADD COLUMN step_no bigint;
CREATE UNIQUE INDEX alert_of_step ON {schema}.alert (step_no) WHERE cause = 'question' AND closed_at IS NULL;
CREATE INDEX alert_question ON {schema}.alert (no) WHERE cause = 'question' AND closed_at IS NULL;

-- Runs of a task whose code continues in another run.
ALTER TABLE {schema}.task ADD COLUMN run integer NOT NULL DEFAULT 1;
ALTER TABLE {schema}.task ADD COLUMN first_no bigint;
ALTER TABLE {schema}.task ADD COLUMN next_no bigint;
CREATE INDEX task_runs ON {schema}.task (first_no) WHERE first_no IS NOT NULL;

-- Commits by which operators acted: an actor is named so, or the events begin so (behind ten characters of JSON).
CREATE INDEX history_acts ON {schema}.history (no)
 WHERE substr(actor, 1, 8) = 'operator'
    OR (task_no = 0 AND (substr(events, 11, 6) = 'token.' OR substr(events, 11, 12) = 'lease.broken'));
