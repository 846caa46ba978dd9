#!/usr/bin/env bash
# A project of its own finds the installed package, links it and runs.
#   consumer_test.sh TREE C++-COMPILER PROJECT [SANITIZERS]     builds and runs the program that has the
#                                                               name of PROJECT's folder
set -euo pipefail
tree=$1
project=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=${4:+-fsanitize=$4}
cmake -S "$project" -B "$work" -G Ninja -DCMAKE_PREFIX_PATH="$tree" \
  -DCMAKE_CXX_COMPILER="$2" -DCMAKE_CXX_FLAGS="$flags"
cmake --build "$work"
"$work/$(basename "$project")"
