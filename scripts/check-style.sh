#!/usr/bin/env bash
# Every C++ and CUDA file must be as clang-format 19 writes it. With --fix it is made so.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run --Werror)
if [[ ${1-} == --fix ]]; then
  mode=(-i)
fi
mapfile -t folders < <(ls -d core io parallel launcher tests examples tools bench 2> /dev/null)
find "${folders[@]}" -regex '.*\.\(h\|cpp\|cu\|cuh\)' -print0 |
  xargs -0 -P "$(nproc)" -n 16 clang-format-19 "${mode[@]}"
