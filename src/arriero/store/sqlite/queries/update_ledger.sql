-- update_ledger: keep how far a ledger is.
-- Params: its fields.
UPDATE arriero_ledger
   SET state = :state,
       digest = :digest,
       written = :written,
       accepted = :accepted,
       duplicates = :duplicates,
       aside = :aside,
       let_go = :let_go,
       reached = :reached,
       written_at = :written_at,
       opened_at = :opened_at
 WHERE ledger_no = :ledger_no
