-- update_ledger: keep how far a ledger is.
-- Params: its fields.
UPDATE {schema}.ledger
   SET state = %(state)s,
       digest = %(digest)s,
       written = %(written)s,
       accepted = %(accepted)s,
       duplicates = %(duplicates)s,
       aside = %(aside)s,
       let_go = %(let_go)s,
       reached = %(reached)s,
       written_at = %(written_at)s,
       opened_at = %(opened_at)s
 WHERE ledger_no = %(ledger_no)s
