-- survey_queues: reply queues with statuses that nobody has acknowledged.
SELECT queue, count(*), min(at) FROM {schema}.status GROUP BY queue ORDER BY queue
