-- select_late_answers: what attempts of a task answered when they no longer counted, in the order of the commits.
-- Params: task_no.
SELECT task_no, ordinal, fence, attempt, verdict, outcome, answer, answered_at, complete_by, link
  FROM arriero_late_answer
 WHERE task_no = :task_no
 ORDER BY link
