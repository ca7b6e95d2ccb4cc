-- create_table: the calls that a service has answered, in the service's own database. SQLite and PostgreSQL alike.
-- begun: only inside of its transaction. barred: nothing may land under the key any more; answer is what was undone.
-- changed_at: microseconds since 1970.
CREATE TABLE IF NOT EXISTS arriero_idempotent_call (
    idempotency_key TEXT PRIMARY KEY,
    state           TEXT NOT NULL CHECK (state IN ('begun', 'answered', 'barred')),
    request_hash    TEXT,
    answer          TEXT,
    changed_at      BIGINT NOT NULL
)

-- begin_call: take a key. Waits on PostgreSQL while another transaction has it. No row changed: it is known.
INSERT INTO arriero_idempotent_call (idempotency_key, state, request_hash, answer, changed_at)
VALUES (:key, 'begun', :request_hash, NULL, :now)
ON CONFLICT (idempotency_key) DO NOTHING

-- find_call: what is known of a key. No row: somebody has dropped it meanwhile.
SELECT state, request_hash, answer FROM arriero_idempotent_call WHERE idempotency_key = :key

-- keep_answer: the answer of a call that was begun in this transaction. No row changed: it is not begun any more.
UPDATE arriero_idempotent_call SET state = 'answered', answer = :answer, changed_at = :now
 WHERE idempotency_key = :key AND state = 'begun'

-- bar_unknown_key: bar a key that never came. Waits as begin_call does. No row changed: it is known.
INSERT INTO arriero_idempotent_call (idempotency_key, state, request_hash, answer, changed_at)
VALUES (:key, 'barred', NULL, NULL, :now)
ON CONFLICT (idempotency_key) DO NOTHING

-- bar_answered_key: bar a key that has its answer, which stays.
UPDATE arriero_idempotent_call SET state = 'barred', changed_at = :now
 WHERE idempotency_key = :key AND state = 'answered'

-- drop_keys: forget keys that did not change since ``before``.
DELETE FROM arriero_idempotent_call WHERE changed_at < :before AND state <> 'begun'
