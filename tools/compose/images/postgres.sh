#!/bin/sh
# Creates the database at the first start. As in the official image, a server runs on the socket during that time.
set -eu
if [ "$(id -u)" = 0 ]; then
    chown postgres "$PGDATA" /run/postgresql
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username "$POSTGRES_USER" --auth "$POSTGRES_HOST_AUTH_METHOD"
    pg_ctl --wait --options "-c listen_addresses=''" start
    createdb --username "$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl --wait stop
fi
exec "$@"
