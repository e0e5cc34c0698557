#!/usr/bin/env bash
# Starts the SuperNode of this device.
# @SECURITY@
set -euo pipefail
umask 077
cd "$(dirname "$0")"
set -a
. ./environment
set +a
@IDENTITY@
export XDG_STATE_HOME=${STATE_DIRECTORY:-$PWD/state}
export FLWR_HOME=$XDG_STATE_HOME/flwr
mkdir -p "$FLWR_HOME"
exec flower-supernode @SUPERNODE_OPTIONS@ \
    --superlink "$AQUILA_SERVER" --host 127.0.0.1 --port "$AQUILA_RUNTIME_PORT" \
    --node-config "partition-id=$AQUILA_DEVICE" "$@"
