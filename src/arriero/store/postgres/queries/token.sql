-- add_token: keep a new token. Zero rows changed: there is one under its id.
-- Params: scopes, apps, workflows (JSON arrays of texts); digest (SHA-256 of the secret, hexadecimal).
INSERT INTO {schema}.token (token_id, name, digest, scopes, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by, revoked_reason, apps, workflows, open_tasks_max)
VALUES (%(token_id)s, %(name)s, %(digest)s, %(scopes)s, %(created_at)s, %(created_by)s, %(expires_at)s, %(last_used_at)s, %(revoked_at)s, %(revoked_by)s, %(revoked_reason)s, %(apps)s, %(workflows)s, %(open_tasks_max)s)
    ON CONFLICT (token_id) DO NOTHING

-- lock_token: one token, ours until the transaction ends. Zero rows: there is none.
SELECT token_id, name, digest, scopes, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by, revoked_reason, apps, workflows, open_tasks_max
  FROM {schema}.token WHERE token_id = %(token_id)s FOR UPDATE

-- put_token: keep the last use of a token, and its revocation. Nothing else of it ever changes.
UPDATE {schema}.token
   SET last_used_at = %(last_used_at)s, revoked_at = %(revoked_at)s, revoked_by = %(revoked_by)s, revoked_reason = %(revoked_reason)s
 WHERE token_id = %(token_id)s

-- select_tokens: tokens by their ids. Params: token_ids (array of texts).
SELECT token_id, name, digest, scopes, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by, revoked_reason, apps, workflows, open_tasks_max
  FROM {schema}.token WHERE token_id = ANY(%(token_ids)s)

-- select_all_tokens: all tokens by the time of their creation.
SELECT token_id, name, digest, scopes, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by, revoked_reason, apps, workflows, open_tasks_max
  FROM {schema}.token ORDER BY created_at, token_id
