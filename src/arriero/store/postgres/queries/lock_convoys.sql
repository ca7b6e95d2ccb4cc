-- lock_convoys: what some keys are doing, ours until the transaction ends; those that another one holds are left out.
-- Params: convoy_nos; task_nos (whose convoys are meant, too).
SELECT {convoy} FROM {schema}.convoy
 WHERE convoy_no = ANY(ARRAY(SELECT unnest(%(convoy_nos)s::bigint[])
                             UNION SELECT t.convoy_no FROM {schema}.task AS t
                                    WHERE t.task_no = ANY(%(task_nos)s::bigint[]) AND t.convoy_no IS NOT NULL))
 ORDER BY convoy_no
   FOR NO KEY UPDATE SKIP LOCKED
