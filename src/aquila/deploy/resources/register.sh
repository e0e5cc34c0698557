#!/usr/bin/env bash
# Registers the public keys of all devices, or one key file, with the running server.
# Run it once after the first start, and again for every new key.
# @SECURITY@
set -euo pipefail
cd "$(dirname "$0")"
set -a
. ./environment
set +a
export FLWR_HOME=$PWD/flwr
failed=0
for key in ${1:-keys/*.pub}; do
    flwr supernode register "$key" federation || failed=1
done
exit $failed
