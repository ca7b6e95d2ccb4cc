-- select_store_head: the last link of the store's own history, ours until the transaction ends.
SELECT link, head FROM {schema}.store_head FOR NO KEY UPDATE
