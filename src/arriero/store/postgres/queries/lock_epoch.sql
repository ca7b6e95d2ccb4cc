-- lock_epoch: the number of the store's epoch, ours until the transaction ends.
SELECT value::integer FROM {schema}.meta WHERE name = 'epoch' FOR NO KEY UPDATE
