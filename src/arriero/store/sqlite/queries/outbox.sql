-- select_statuses: the oldest statuses of a queue, its gap mark first. What is published may be shown a moment later.
-- Params: queue, limit, now; apps, workflows (JSON arrays): only of tasks of these (null: any).
SELECT no, queue, status.task_no, coalesce(task_id, ''), coalesce(workflow, ''), number, status.incarnation, kind, at, data
  FROM arriero_status AS status LEFT JOIN arriero_task AS task ON task.task_no = status.task_no
 WHERE queue = :queue
   AND (kind <> 'progress' OR at <= :now OR task.ended_at IS NOT NULL)
   AND (:apps IS NULL OR task.app IN (SELECT value FROM json_each(:apps)))
   AND (:workflows IS NULL OR task.workflow IN (SELECT value FROM json_each(:workflows)))
 ORDER BY kind <> 'dropped', no
 LIMIT :limit

-- delete_statuses: readers acknowledged them.
-- Params: rows (JSON array of objects: queue, no).
DELETE FROM arriero_status
 WHERE (no, queue) IN (SELECT json_extract(value, '$.no'), json_extract(value, '$.queue') FROM json_each(:rows))

-- select_old_statuses: statuses to be dropped.
-- Params: before (an instant), limit.
SELECT no, queue, task_no, '', '', number, incarnation, kind, at, data
  FROM arriero_status
 WHERE at < :before AND kind <> 'dropped'
 ORDER BY no
 LIMIT :limit

-- select_gap_marks: the gap marks of some queues.
SELECT no, queue, task_no, '', '', number, incarnation, kind, at, data
  FROM arriero_status
 WHERE queue IN (SELECT value FROM json_each(:queues)) AND kind = 'dropped'

-- insert_alert: a task needs an operator. A task has at most one open alert about an unreadable row.
INSERT INTO arriero_alert (task_no, incarnation, cause, reason, step, code, opened_at, closed_at, told, attempts, next_at, error,
                           trace, step_no)
VALUES (:task_no, :incarnation, :cause, :reason, :step, :code, :opened_at, NULL, '[]', 0, :next_at, '', :trace, :step_no)
    ON CONFLICT DO NOTHING

-- select_alerts: alerts in the order in which they were opened.
-- Params: after (no), open_only, questions (whether those are among them), limit.
SELECT no, alert.task_no, coalesce(task_id, ''), coalesce(workflow, ''), alert.incarnation, cause, reason, step, code, opened_at,
       closed_at, told, attempts, next_at, error, trace, tags,
       (SELECT parent.task_id FROM arriero_task AS parent WHERE parent.task_no = task.parent_step >> 20)
  FROM arriero_alert AS alert LEFT JOIN arriero_task AS task ON task.task_no = alert.task_no
 WHERE no > :after AND (NOT :open_only OR closed_at IS NULL) AND (:questions OR cause <> 'question')
 ORDER BY no
 LIMIT :limit

-- select_newest_alerts: alerts, the newest first.
-- Params: after, before (no), open_only, questions (whether those are among them), limit.
SELECT no, alert.task_no, coalesce(task_id, ''), coalesce(workflow, ''), alert.incarnation, cause, reason, step, code, opened_at,
       closed_at, told, attempts, next_at, error, trace, tags,
       (SELECT parent.task_id FROM arriero_task AS parent WHERE parent.task_no = task.parent_step >> 20)
  FROM arriero_alert AS alert LEFT JOIN arriero_task AS task ON task.task_no = alert.task_no
 WHERE no > :after AND no < :before AND (NOT :open_only OR closed_at IS NULL) AND (:questions OR cause <> 'question')
 ORDER BY no DESC
 LIMIT :limit

-- select_due_alerts: alerts to deliver now, longest due first.
SELECT no, alert.task_no, coalesce(task_id, ''), coalesce(workflow, ''), alert.incarnation, cause, reason, step, code, opened_at,
       closed_at, told, attempts, next_at, error, trace, tags,
       (SELECT parent.task_id FROM arriero_task AS parent WHERE parent.task_no = task.parent_step >> 20)
  FROM arriero_alert AS alert LEFT JOIN arriero_task AS task ON task.task_no = alert.task_no
 WHERE next_at IS NOT NULL AND next_at <= :now
 ORDER BY next_at, no
 LIMIT :limit

-- hold_alert: the process that asks delivers it; nobody else does before next_at.
UPDATE arriero_alert SET attempts = attempts + 1, next_at = :next_at WHERE no = :no

-- settle_alert: the sinks that have it. Zero rows: another process took or closed it meanwhile.
-- Params: told (JSON array).
UPDATE arriero_alert SET told = :told, next_at = :next_at, error = :error WHERE no = :no AND attempts = :attempts

-- close_alert: a task left its error: every sink must hear of the alert again.
UPDATE arriero_alert SET closed_at = :at, told = '[]', attempts = attempts + 1, next_at = :at
 WHERE task_no = :task_no AND closed_at IS NULL

-- close_question: a question was answered, or nobody waits for the answer: every sink must hear of its alert again.
UPDATE arriero_alert SET closed_at = :at, told = '[]', attempts = attempts + 1, next_at = :at
 WHERE step_no = :step_no AND cause = 'question' AND closed_at IS NULL

-- deliver_open_alerts_again: the store was restored, and the sinks may have heard of the end of an alert that is open again.
UPDATE arriero_alert SET told = '[]', attempts = attempts + 1, next_at = :at WHERE closed_at IS NULL

-- select_questions: open questions in the order in which they were asked.
-- Params: of: who is asked (empty: anyone); after (no); limit; apps, workflows (JSON arrays): only of tasks of these (null: any).
SELECT alert.no, task.task_id, task.workflow, task.app, step.ordinal, step.key, alert.code, step.arguments, alert.opened_at, step.not_before
  FROM arriero_alert AS alert
       JOIN arriero_task AS task ON task.task_no = alert.task_no
       JOIN arriero_step AS step ON step.step_no = alert.step_no
 WHERE alert.cause = 'question' AND alert.closed_at IS NULL AND step.state = 'pending' AND alert.no > :after AND (:of = '' OR alert.code = :of)
   AND (:apps IS NULL OR task.app IN (SELECT value FROM json_each(:apps)))
   AND (:workflows IS NULL OR task.workflow IN (SELECT value FROM json_each(:workflows)))
 ORDER BY alert.no
 LIMIT :limit

-- close_unreadable: every row of some tasks can be read again: every sink must hear of the alert again.
UPDATE arriero_alert SET closed_at = :at, told = '[]', attempts = attempts + 1, next_at = :at
 WHERE task_no IN (SELECT value FROM json_each(:task_nos)) AND cause = 'unreadable' AND closed_at IS NULL

-- close_unreadable_row: a shared row can be read again, or was removed: every sink must hear of the alert again.
-- Params: step (the row's name).
UPDATE arriero_alert SET closed_at = :at, told = '[]', attempts = attempts + 1, next_at = :at
 WHERE task_no = 0 AND cause = 'unreadable' AND step = :step AND closed_at IS NULL

-- select_unreadable: tasks and shared rows with an open alert about a row that cannot be read.
-- Rows: task_no (0: a shared row), step (the name of the row).
SELECT task_no, step FROM arriero_alert INDEXED BY arriero_alert_unreadable
 WHERE cause = 'unreadable' AND closed_at IS NULL
 ORDER BY task_no
 LIMIT :limit

-- close_breaker_alert: a breaker was closed: every sink must hear of its alert again.
-- Params: step (the Agent with its target), code (the App).
UPDATE arriero_alert SET closed_at = :at, told = '[]', attempts = attempts + 1, next_at = :at
 WHERE task_no = 0 AND cause = 'breaker' AND step = :step AND code = :code AND closed_at IS NULL

-- pass_statuses_on: the messages of a task that continues are those of its next run, under whose id their reader knows it.
-- Params: task_no, earlier (number of the run before).
UPDATE arriero_status SET task_no = :task_no WHERE task_no = :earlier
