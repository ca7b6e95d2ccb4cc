-- put_store_head: the last link of the store's own history.
-- Params: link, head.
UPDATE {schema}.store_head SET link = %(link)s, head = %(head)s
