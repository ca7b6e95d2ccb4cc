#!/bin/sh
# PostgreSQL's image runs this once, when it makes the database: the role of the processes, without any right.
# `arriero migrate --role run shop` gives it the rights in the schema.
set -eu
: "${SHOP_PASSWORD:?secrets/postgres.env must name it}"
export SHOP_PASSWORD # psql reads it there: other users of the host can see a command line
psql --no-psqlrc --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\getenv password SHOP_PASSWORD
CREATE ROLE shop LOGIN PASSWORD :'password';
REVOKE ALL ON DATABASE shop FROM PUBLIC;
GRANT CONNECT ON DATABASE shop TO shop;
SQL
