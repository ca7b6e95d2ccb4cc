-- mend_clock: where the server's clock has gone back behind what a process has seen, the store's goes on from there.
WITH behind AS (
    SELECT (SELECT max(renewed_at) FROM {schema}.process) - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS by
)
UPDATE {schema}.meta SET value = behind.by::text
  FROM behind
 WHERE name = 'clock_offset' AND behind.by > value::bigint
