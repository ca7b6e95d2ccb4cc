-- measure_backlog: what waits, each kind counted up to a limit. See inspection.backlog for the columns, in their order.
-- Tasks that are free are asked for by priority: then the index answers without reading those that are due later.
SELECT (SELECT count(*) FROM (SELECT 1 FROM arriero_task WHERE locked_by IS NOT NULL LIMIT :limit)),
       (SELECT min(:limit, sum(counted))
          FROM (SELECT (SELECT count(*)
                          FROM (SELECT 1 FROM arriero_task INDEXED BY arriero_task_claimable
                                 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL
                                   AND priority = priorities.value AND not_before <= :now LIMIT :limit)) AS counted
                  FROM json_each(:priorities) AS priorities)),
       (SELECT min(oldest)
          FROM (SELECT (SELECT min(not_before) FROM arriero_task INDEXED BY arriero_task_claimable
                         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL
                           AND priority = priorities.value AND not_before <= :now) AS oldest
                  FROM json_each(:priorities) AS priorities)),
       (SELECT min(:limit, sum(counted))
          FROM (SELECT (SELECT count(*)
                          FROM (SELECT 1 FROM arriero_task INDEXED BY arriero_task_claimable
                                 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL
                                   AND priority = priorities.value AND not_before > :now LIMIT :limit)) AS counted
                  FROM json_each(:priorities) AS priorities)),
       (SELECT count(*) FROM (SELECT 1 FROM arriero_task WHERE turn = 'waiting' LIMIT :limit)),
       (SELECT count(*) FROM (SELECT 1 FROM arriero_task WHERE state = 'error' LIMIT :limit)),
       (SELECT count(*) FROM (SELECT 1 FROM arriero_convoy INDEXED BY arriero_convoy_still
                               WHERE (state IN ('stopped', 'gap') OR parked_at IS NOT NULL)
                                 AND state = 'stopped' AND parked_at IS NULL LIMIT :limit)),
       (SELECT count(*) FROM (SELECT 1 FROM arriero_convoy INDEXED BY arriero_convoy_still
                               WHERE (state IN ('stopped', 'gap') OR parked_at IS NOT NULL)
                                 AND state = 'gap' AND parked_at IS NULL LIMIT :limit)),
       (SELECT count(*) FROM (SELECT 1 FROM arriero_convoy INDEXED BY arriero_convoy_still
                               WHERE (state IN ('stopped', 'gap') OR parked_at IS NOT NULL)
                                 AND parked_at IS NOT NULL LIMIT :limit)),
       (SELECT count(*) FROM (SELECT 1 FROM arriero_alert WHERE closed_at IS NULL AND cause <> 'question' LIMIT :limit)),
       (SELECT count(*) FROM (SELECT 1 FROM arriero_status LIMIT :limit)),
       (SELECT min(at) FROM arriero_status),
       (SELECT count(*) FROM (SELECT 1 FROM arriero_schedule WHERE look_at <= :now LIMIT :limit)),
       (SELECT min(look_at) FROM arriero_schedule WHERE look_at <= :now),
       (SELECT count(*) FROM arriero_lease WHERE holder IS NOT NULL AND until > :now)
