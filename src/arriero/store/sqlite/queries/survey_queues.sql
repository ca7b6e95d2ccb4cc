-- survey_queues: reply queues with statuses that nobody has acknowledged.
SELECT queue, count(*), min(at) FROM arriero_status GROUP BY queue ORDER BY queue
