-- insert_process: a new process start, and the row that its batches are numbered in. A new epoch waits for it, or it for that.
-- Params: instance, lease_until, about.
WITH added AS (
    INSERT INTO {schema}.process (instance, lease_until, retired, about)
    VALUES (%(instance)s, %(lease_until)s, false, %(about)s)
    RETURNING process_no
)
INSERT INTO {schema}.writer (process_no, epoch, batch_no)
SELECT process_no, (SELECT value::integer FROM {schema}.meta WHERE name = 'epoch' FOR SHARE), 0 FROM added
RETURNING process_no, epoch
