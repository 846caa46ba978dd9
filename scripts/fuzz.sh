#!/usr/bin/env bash
# Runs each fuzz target of build/fuzz, several at once, for a while.
#   scripts/fuzz.sh [SECONDS]      per target; new inputs are kept in build/fuzz/corpus/
# A crash is left in build/fuzz/crashes/ and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
mkdir -p build/fuzz/crashes

fuzz() {
  local target=$1 name=${1##*/fuzz_}
  local dictionary=()
  [[ -f tests/fuzz/$name.dict ]] && dictionary=("-dict=tests/fuzz/$name.dict")
  mkdir -p "build/fuzz/corpus/$name"
  if ! "$target" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
      -print_final_stats=1 -artifact_prefix="build/fuzz/crashes/$name-" "${dictionary[@]}" \
      "build/fuzz/corpus/$name" "build/fuzz/seeds/$name" > "build/fuzz/$name.log" 2>&1; then
    tail -n 60 "build/fuzz/$name.log"
    echo "fuzzing: $name failed; its input is build/fuzz/crashes/$name-*"
    return 1
  fi
  echo "fuzzing: $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$name.log") inputs"
}
export -f fuzz
find build/fuzz/bin -name 'fuzz_*' -type f -perm -u+x | sort |
  xargs -P "$(nproc)" -I TARGET bash -c 'fuzz "$@"' fuzz TARGET "$seconds"
