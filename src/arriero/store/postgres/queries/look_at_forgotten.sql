-- look_at_forgotten: have convoys looked at whose open task has ended without passing its turn on.
-- Params: now.
UPDATE {schema}.convoy AS c SET look_at = %(now)s
 WHERE c.convoy_no IN (SELECT f.convoy_no FROM {schema}.convoy AS f JOIN {schema}.task AS t ON t.task_no = f.open_task
                        WHERE f.state = 'open' AND f.look_at IS NULL
                          AND t.state IN ('processed', 'compensated', 'error')
                        ORDER BY f.convoy_no FOR NO KEY UPDATE OF f SKIP LOCKED)
RETURNING c.convoy_no
