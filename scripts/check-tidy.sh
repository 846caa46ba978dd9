#!/usr/bin/env bash
# clang-tidy 19 over our own sources, most recently changed first, within a bound of seconds.
#   scripts/check-tidy.sh PRESET [SECONDS]
# Fails on any finding; files that the bound left out are named, and are no failure.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: scripts/check-tidy.sh PRESET [SECONDS]}
seconds=${2:-3600}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# History orders the files where there is one; in a copy without it any order will do.
{
  git log --format= --name-only -n 200 2> /dev/null || true
  find core io parallel launcher -name '*.cpp' 2> /dev/null | sort || true  # not all are there
} | grep -E '^(core|io|parallel|launcher)/.*\.cpp$' | awk '!seen[$0]++' |
  while read -r file; do
    # Only what this build compiles: other files' flags are unknown.
    if [[ -f $file ]] && grep -q "/$file\"" "build/$preset/compile_commands.json"; then
      echo "$file"
    fi
  done > "$work/files"

check() {
  local file=$1 name=${1//\//_}
  (( $(date +%s) < $4 )) || { echo "$file" >> "$3/left-out"; return 0; }
  if ! clang-tidy-19 -p "build/$2" --quiet "$file" > "$3/$name.log" 2> "$3/$name.errors"; then
    cat "$3/$name.log" "$3/$name.errors"
    echo "$file" >> "$3/failed"
  fi
}
export -f check
[[ -s $work/files ]] || { echo "clang-tidy: build/$preset compiles none of our files"; exit 1; }
xargs -a "$work/files" -P "$(nproc)" -I FILE \
  bash -c 'check "$@"' check FILE "$preset" "$work" $(($(date +%s) + seconds))

if [[ -f $work/left-out ]]; then
  echo "clang-tidy: no time left for $(wc -l < "$work/left-out") of $(wc -l < "$work/files") files:"
  sed 's/^/  /' "$work/left-out"
fi
if [[ -f $work/failed ]]; then
  echo "clang-tidy: findings in:"
  sort "$work/failed" | sed 's/^/  /'
  exit 1
fi
