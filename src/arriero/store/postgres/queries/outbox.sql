-- select_statuses: the oldest statuses of a queue, its gap mark first. What is published may be shown a moment later.
-- Params: queue, limit, now; apps, workflows (arrays): only of tasks of these (null: any).
SELECT no, queue, status.task_no, coalesce(task_id, ''), coalesce(workflow, ''), number, status.incarnation, kind, at, data
  FROM {schema}.status AS status LEFT JOIN {schema}.task AS task ON task.task_no = status.task_no
 WHERE queue = %(queue)s
   AND (kind <> 'progress' OR at <= %(now)s OR task.ended_at IS NOT NULL)
   AND (%(apps)s::text[] IS NULL OR task.app = ANY(%(apps)s))
   AND (%(workflows)s::text[] IS NULL OR task.workflow = ANY(%(workflows)s))
 ORDER BY kind <> 'dropped', no
 LIMIT %(limit)s

-- delete_statuses: readers acknowledged them.
-- Params: rows (JSON array of objects: queue, no).
DELETE FROM {schema}.status AS status
 USING json_to_recordset(%(rows)s::json) AS given (queue text, no bigint)
 WHERE status.no = given.no AND status.queue = given.queue

-- select_old_statuses: statuses to be dropped, locked until the transaction ends.
-- Params: before (an instant), limit.
SELECT no, queue, task_no, '', '', number, incarnation, kind, at, data
  FROM {schema}.status
 WHERE at < %(before)s AND kind <> 'dropped'
 ORDER BY no
 LIMIT %(limit)s
   FOR UPDATE SKIP LOCKED

-- select_gap_marks: the gap marks of some queues, locked until the transaction ends.
SELECT no, queue, task_no, '', '', number, incarnation, kind, at, data
  FROM {schema}.status
 WHERE queue = ANY(%(queues)s) AND kind = 'dropped'
 ORDER BY no
   FOR UPDATE

-- take_alerts: alerts to deliver now, longest due first; no other process takes them before next_at.
WITH due AS (
    SELECT no, next_at AS was_due_at FROM {schema}.alert
     WHERE next_at IS NOT NULL AND next_at <= %(now)s
     ORDER BY next_at, no
     LIMIT %(limit)s
       FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
    UPDATE {schema}.alert AS alert SET attempts = alert.attempts + 1, next_at = %(next_at)s
      FROM due WHERE alert.no = due.no
    RETURNING alert.*, due.was_due_at
)
SELECT taken.no, taken.task_no, coalesce(task.task_id, ''), coalesce(task.workflow, ''), taken.incarnation, cause, reason, step, code, opened_at, closed_at,
       told, attempts, next_at, error, trace, tags,
       (SELECT parent.task_id FROM {schema}.task AS parent WHERE parent.task_no = task.parent_step >> 20)
  FROM (SELECT * FROM taken) AS taken LEFT JOIN {schema}.task AS task ON task.task_no = taken.task_no
 ORDER BY was_due_at, taken.no

-- select_alerts: alerts in the order in which they were opened.
-- Params: after (no), open_only, questions (whether those are among them), limit.
SELECT no, alert.task_no, coalesce(task_id, ''), coalesce(workflow, ''), alert.incarnation, cause, reason, step, code, opened_at, closed_at, told,
       attempts, alert.next_at, error, trace, tags,
       (SELECT parent.task_id FROM {schema}.task AS parent WHERE parent.task_no = task.parent_step >> 20)
  FROM {schema}.alert AS alert LEFT JOIN {schema}.task AS task ON task.task_no = alert.task_no
 WHERE no > %(after)s AND (NOT %(open_only)s OR closed_at IS NULL) AND (%(questions)s OR cause <> 'question')
 ORDER BY no
 LIMIT %(limit)s

-- select_newest_alerts: alerts, the newest first.
-- Params: after, before (no), open_only, questions (whether those are among them), limit.
SELECT no, alert.task_no, coalesce(task_id, ''), coalesce(workflow, ''), alert.incarnation, cause, reason, step, code, opened_at, closed_at, told,
       attempts, alert.next_at, error, trace, tags,
       (SELECT parent.task_id FROM {schema}.task AS parent WHERE parent.task_no = task.parent_step >> 20)
  FROM {schema}.alert AS alert LEFT JOIN {schema}.task AS task ON task.task_no = alert.task_no
 WHERE no > %(after)s AND no < %(before)s AND (NOT %(open_only)s OR closed_at IS NULL) AND (%(questions)s OR cause <> 'question')
 ORDER BY no DESC
 LIMIT %(limit)s

-- settle_alert: the sinks that have it. Zero rows: another process took or closed it meanwhile.
-- Params: told (JSON array).
UPDATE {schema}.alert SET told = %(told)s, next_at = %(next_at)s, error = %(error)s
 WHERE no = %(no)s AND attempts = %(attempts)s

-- close_alert: a task left its error: every sink must hear of the alert again.
UPDATE {schema}.alert SET closed_at = %(at)s, told = '[]', attempts = attempts + 1, next_at = %(at)s
 WHERE task_no = %(task_no)s AND closed_at IS NULL

-- close_question: a question was answered, or nobody waits for the answer: every sink must hear of its alert again.
UPDATE {schema}.alert SET closed_at = %(at)s, told = '[]', attempts = attempts + 1, next_at = %(at)s
 WHERE step_no = %(step_no)s AND cause = 'question' AND closed_at IS NULL

-- deliver_open_alerts_again: the store was restored, and the sinks may have heard of the end of an alert that is open again.
UPDATE {schema}.alert SET told = '[]', attempts = attempts + 1, next_at = %(at)s WHERE closed_at IS NULL

-- select_questions: open questions in the order in which they were asked.
-- Params: of: who is asked (empty: anyone); after (no); limit; apps, workflows (arrays): only of tasks of these (null: any).
SELECT alert.no, task.task_id, task.workflow, task.app, step.ordinal, step.key, alert.code, step.arguments, alert.opened_at, step.not_before
  FROM {schema}.alert AS alert
       JOIN {schema}.task AS task ON task.task_no = alert.task_no
       JOIN {schema}.step AS step ON step.step_no = alert.step_no
 WHERE alert.cause = 'question' AND alert.closed_at IS NULL AND step.state = 'pending' AND alert.no > %(after)s AND (%(of)s = '' OR alert.code = %(of)s)
   AND (%(apps)s::text[] IS NULL OR task.app = ANY(%(apps)s))
   AND (%(workflows)s::text[] IS NULL OR task.workflow = ANY(%(workflows)s))
 ORDER BY alert.no
 LIMIT %(limit)s

-- close_unreadable: every row of some tasks can be read again: every sink must hear of the alert again.
UPDATE {schema}.alert SET closed_at = %(at)s, told = '[]', attempts = attempts + 1, next_at = %(at)s
 WHERE task_no = ANY(%(task_nos)s) AND cause = 'unreadable' AND closed_at IS NULL

-- close_unreadable_row: a shared row can be read again, or was removed: every sink must hear of the alert again.
-- Params: step (the row's name).
UPDATE {schema}.alert SET closed_at = %(at)s, told = '[]', attempts = attempts + 1, next_at = %(at)s
 WHERE task_no = 0 AND cause = 'unreadable' AND step = %(step)s AND closed_at IS NULL

-- select_unreadable: tasks and shared rows with an open alert about a row that cannot be read.
-- Rows: task_no (0: a shared row), step (the name of the row).
SELECT task_no, step FROM {schema}.alert
 WHERE cause = 'unreadable' AND closed_at IS NULL
 ORDER BY task_no
 LIMIT %(limit)s

-- close_breaker_alert: a breaker was closed: every sink must hear of its alert again.
-- Params: step (the Agent with its target), code (the App).
UPDATE {schema}.alert SET closed_at = %(at)s, told = '[]', attempts = attempts + 1, next_at = %(at)s
 WHERE task_no = 0 AND cause = 'breaker' AND step = %(step)s AND code = %(code)s AND closed_at IS NULL

-- pass_statuses_on: the messages of a task that continues are those of its next run, under whose id their reader knows it.
-- Params: task_no, earlier (number of the run before).
UPDATE {schema}.status SET task_no = %(task_no)s WHERE task_no = %(earlier)s
