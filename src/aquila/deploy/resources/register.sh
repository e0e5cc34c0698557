#!/usr/bin/env bash
# Tells the running server the public keys of all devices; once, and again for a new key.
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
