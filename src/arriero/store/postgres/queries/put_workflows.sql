-- put_workflows: what workflows are called and how they are supervised, for those who submit by SQL.
-- Params: rows (JSON array of objects: name, policy, complete_within).
INSERT INTO {schema}.workflow AS known (name, policy, complete_within)
SELECT name, policy, complete_within
  FROM json_to_recordset(%(rows)s::json) AS given (name text, policy text, complete_within double precision)
 ORDER BY name
    ON CONFLICT (name) DO UPDATE SET policy = excluded.policy, complete_within = excluded.complete_within
 WHERE (known.policy, known.complete_within) IS DISTINCT FROM (excluded.policy, excluded.complete_within)
