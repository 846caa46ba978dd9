#!/usr/bin/env bash
# scripts/setup.sh with stand-ins for what touches the system: it must change nothing when nothing
# is missing, and otherwise install, or say what is missing and end with exit code 2.
#   setup_test.sh ROOT
set -euo pipefail
command -v dpkg-query > /dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tree" "$work/bin"
cp -r "$1/scripts" "$work/tree/scripts"
# No CUDA here, whatever the machine has: its part asks the network.
sed -i 's/^find_nvcc() {/find_nvcc() { return 0; }\nunused() {/' "$work/tree/scripts/common.sh"
failures=0

stand_in() { printf '#!/bin/sh\n%s\n' "$2" > "$work/bin/$1"; chmod +x "$work/bin/$1"; }
list() { printf '%b' "$1" > "$work/tree/scripts/packages.txt"; }
# expect NAME STATUS TEXT: runs the set-up of the group build.
expect() {
  local status=0 output
  : > "$work/calls"
  output=$(PATH="$work/bin:$PATH" "$work/tree/scripts/setup.sh" build 2>&1 < /dev/null) || status=$?
  if [[ $status != "$2" || $output != *"$3"* ]]; then
    echo "$1: expected exit code $2 and '$3'; got $status and: $output"
    failures=$((failures + 1))
  fi
}

stand_in apt-get "echo \"apt-get \$*\" >> $work/calls; exit 100"
stand_in id 'echo 0'

list 'build base-files 1 always there\nother no-such-package-at-all 1 another group\n'
expect "nothing missing" 0 ""
[[ ! -s $work/calls ]] || { echo "nothing missing: apt-get was called"; failures=$((failures + 1)); }

list 'build no-such-package-at-all 7.5 the reason for it\n'
expect "no network" 2 "the reason for it"
grep -q 'install.*no-such-package-at-all' "$work/calls" || { echo "no network: no install was tried"; failures=$((failures + 1)); }

list 'build base-files 99999 too old here\n'
expect "too old" 2 "too old here"

stand_in id 'echo 1000'
stand_in sudo 'exit 1'
list 'build no-such-package-at-all 7.5 the reason for it\n'
expect "neither root nor sudo" 2 "no-such-package-at-all"
[[ ! -s $work/calls ]] || { echo "neither root nor sudo: apt-get was called"; failures=$((failures + 1)); }

# Installs, but the release is too old all the same.
stand_in apt-get 'exit 0'
stand_in id 'echo 0'
expect "release too old" 2 "older than MegaTrain needs"
exit "$((failures > 0))"
