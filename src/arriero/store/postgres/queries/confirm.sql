-- confirm: a write of those who have no process's row; the commit confirms everything before it too.
UPDATE {schema}.store_head SET link = link
