#!/bin/sh
# Bytes to accuracy at the paper's scale, on a GPU; about a quarter of an hour on an H200.
#
#     experiments/beyond/gpu.sh [FOLDER]      # default: results/beyond_gpu
#
# One line a finished run is written to FOLDER; started again with the same folder, it goes on with
# the runs that are missing, most telling ones first. CIFAR-10 and WikiText-2 must be where
# `aquila data` finds them.
set -e
here=$(dirname "$0")
out=${1:-results/beyond_gpu}
for name in resnet18_iid resnet18_non_iid resnet18_widths transformer_iid_80; do
    "${PYTHON:-python}" "$here/../../benchmarks/beyond.py" run "$here/gpu/$name.toml" --seeds 0 --out "$out"
done
"${PYTHON:-python}" "$here/../../benchmarks/beyond.py" table "$out"
