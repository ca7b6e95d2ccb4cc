-- measure_backlog: what waits, each kind counted up to a limit. See inspection.backlog for the columns, in their order.
-- Before PostgreSQL 16 each sub-query in FROM needs a name.
-- Tasks that are free are asked for by priority: then the index answers without reading those that are due later.
SELECT (SELECT count(*) FROM (SELECT 1 FROM {schema}.task WHERE locked_by IS NOT NULL LIMIT %(limit)s) AS first),
       (SELECT least(%(limit)s, coalesce(sum(counted), 0))::bigint
          FROM (SELECT (SELECT count(*)
                          FROM (SELECT 1 FROM {schema}.task
                                 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL
                                   AND priority = priorities.value AND not_before <= %(now)s LIMIT %(limit)s) AS first) AS counted
                  FROM unnest(%(priorities)s::integer[]) AS priorities (value)) AS of_priority),
       (SELECT min(oldest)
          FROM (SELECT (SELECT min(not_before) FROM {schema}.task
                         WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL
                           AND priority = priorities.value AND not_before <= %(now)s) AS oldest
                  FROM unnest(%(priorities)s::integer[]) AS priorities (value)) AS of_priority),
       (SELECT least(%(limit)s, coalesce(sum(counted), 0))::bigint
          FROM (SELECT (SELECT count(*)
                          FROM (SELECT 1 FROM {schema}.task
                                 WHERE locked_by IS NULL AND not_before IS NOT NULL AND paused_at IS NULL
                                   AND priority = priorities.value AND not_before > %(now)s LIMIT %(limit)s) AS first) AS counted
                  FROM unnest(%(priorities)s::integer[]) AS priorities (value)) AS of_priority),
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.task WHERE turn = 'waiting' LIMIT %(limit)s) AS first),
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.task WHERE state = 'error' LIMIT %(limit)s) AS first),
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.convoy
                               WHERE (state IN ('stopped', 'gap') OR parked_at IS NOT NULL)
                                 AND state = 'stopped' AND parked_at IS NULL LIMIT %(limit)s) AS first),
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.convoy
                               WHERE (state IN ('stopped', 'gap') OR parked_at IS NOT NULL)
                                 AND state = 'gap' AND parked_at IS NULL LIMIT %(limit)s) AS first),
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.convoy
                               WHERE (state IN ('stopped', 'gap') OR parked_at IS NOT NULL)
                                 AND parked_at IS NOT NULL LIMIT %(limit)s) AS first),
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.alert WHERE closed_at IS NULL AND cause <> 'question' LIMIT %(limit)s) AS first),
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.status LIMIT %(limit)s) AS first),
       (SELECT min(at) FROM {schema}.status),
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.schedule WHERE look_at <= %(now)s LIMIT %(limit)s) AS first),
       (SELECT min(look_at) FROM {schema}.schedule WHERE look_at <= %(now)s),
       (SELECT count(*) FROM {schema}.lease WHERE holder IS NOT NULL AND until > %(now)s)
