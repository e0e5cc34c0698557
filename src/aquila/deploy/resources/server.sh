#!/usr/bin/env bash
# Starts the server of this federation: Flower's SuperLink, which listens on loopback only, and the
# proxy, which devices connect to. If one of the two stops, the other is stopped too.
# @SECURITY@
set -euo pipefail
umask 077
cd "$(dirname "$0")"
set -a
. ./environment
set +a
@IDENTITY@
state=${STATE_DIRECTORY:-$PWD/state}
export FLWR_HOME=$state/flwr
mkdir -p "$FLWR_HOME"
export AQUILA_NOTICES=$state/notices
: > "$AQUILA_NOTICES"
tail -f "$AQUILA_NOTICES" >&2 &  # errors of server apps, whose own output Flower discards

flower-superlink @SUPERLINK_OPTIONS@ \
    --host 127.0.0.1 --port "$AQUILA_SUPERLINK_PORT" \
    --database "$state/superlink.db" --disable-runtime-dependency-installation &
aquila deploy proxy @PROXY_OPTIONS@ \
    --listen "$AQUILA_LISTEN" --port "$AQUILA_PORT" --superlink "127.0.0.1:$AQUILA_SUPERLINK_PORT" \
    --max-connections "$AQUILA_MAX_CONNECTIONS" \
    --max-connections-per-address "$AQUILA_MAX_CONNECTIONS_PER_ADDRESS" \
    --status-port "$AQUILA_STATUS_PORT" --runs "$state" --log-format "${AQUILA_LOG_FORMAT:-text}" &
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
trap 'exit 143' INT TERM
wait -n
