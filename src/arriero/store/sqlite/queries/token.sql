-- add_token: keep a new token. Zero rows changed: there is one under its id.
-- Params: scopes, apps, workflows (JSON arrays of texts); digest (SHA-256 of the secret, hexadecimal).
INSERT INTO arriero_token (token_id, name, digest, scopes, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by, revoked_reason, apps, workflows, open_tasks_max)
VALUES (:token_id, :name, :digest, :scopes, :created_at, :created_by, :expires_at, :last_used_at, :revoked_at, :revoked_by, :revoked_reason, :apps, :workflows, :open_tasks_max)
    ON CONFLICT (token_id) DO NOTHING

-- lock_token: one token, ours until the transaction ends. Zero rows: there is none.
SELECT token_id, name, digest, scopes, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by, revoked_reason, apps, workflows, open_tasks_max
  FROM arriero_token WHERE token_id = :token_id

-- put_token: keep the last use of a token, and its revocation. Nothing else of it ever changes.
UPDATE arriero_token
   SET last_used_at = :last_used_at, revoked_at = :revoked_at, revoked_by = :revoked_by, revoked_reason = :revoked_reason
 WHERE token_id = :token_id

-- select_tokens: tokens by their ids. Params: token_ids (JSON array).
SELECT token_id, name, digest, scopes, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by, revoked_reason, apps, workflows, open_tasks_max
  FROM arriero_token WHERE token_id IN (SELECT value FROM json_each(:token_ids))

-- select_all_tokens: all tokens by the time of their creation.
SELECT token_id, name, digest, scopes, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by, revoked_reason, apps, workflows, open_tasks_max
  FROM arriero_token ORDER BY created_at, token_id
