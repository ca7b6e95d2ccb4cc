-- select_last_renewal: when any process renewed last, and until when nobody may free.
SELECT (SELECT max(renewed_at) FROM {schema}.process),
       (SELECT value::bigint FROM {schema}.meta WHERE name = 'nobody_frees_until')
