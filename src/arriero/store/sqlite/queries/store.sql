-- select_meta: one setting of the store.
SELECT value FROM arriero_meta WHERE name = :name

-- list_meta: all settings of the store. Rows: name, value.
SELECT name, value FROM arriero_meta

-- put_meta: keep one setting of the store.
INSERT INTO arriero_meta (name, value) VALUES (:name, :value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- take_write_lock: takes the write lock and changes nothing. From here on the transaction sees all earlier commits.
UPDATE arriero_meta SET value = value WHERE name = ''

-- select_secret: one secret of the store, in hexadecimal. No row: nobody has needed it yet.
SELECT value FROM arriero_secret WHERE name = :name

-- add_secret: keep a secret, unless one is kept under its name.
INSERT INTO arriero_secret (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING

-- delete_secrets: remove all secrets but that of callbacks: the next ones who need one make another.
DELETE FROM arriero_secret WHERE name <> 'callback'
