-- put_app_workflows: what the workflows of one App are called and how they are supervised, for those who submit by SQL.
-- Params: app, rows (JSON array of objects: name, policy, complete_within).
INSERT INTO {schema}.app_workflow AS known (name, app, policy, complete_within)
SELECT name, %(app)s::text, policy, complete_within
  FROM json_to_recordset(%(rows)s::json) AS given (name text, policy text, complete_within double precision)
 ORDER BY name
    ON CONFLICT (name, app) DO UPDATE SET policy = excluded.policy, complete_within = excluded.complete_within
 WHERE (known.policy, known.complete_within) IS DISTINCT FROM (excluded.policy, excluded.complete_within)
