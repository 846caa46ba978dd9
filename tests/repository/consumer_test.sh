#!/usr/bin/env bash
# A project of its own finds the installed package, links it and runs.
#   consumer_test.sh TREE C++-COMPILER SANITIZERS
set -euo pipefail
tree=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=${3:+-fsanitize=$3}
cmake -S "$(dirname "$0")/consumer" -B "$work" -G Ninja -DCMAKE_PREFIX_PATH="$tree" \
  -DCMAKE_CXX_COMPILER="$2" -DCMAKE_CXX_FLAGS="$flags"
cmake --build "$work"
"$work/consumer"
