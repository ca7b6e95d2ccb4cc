-- lock_registration: processes that start come one after the other, so that each sees what the others run.
SELECT 1 FROM {schema}.meta WHERE name = 'store_id' FOR NO KEY UPDATE
