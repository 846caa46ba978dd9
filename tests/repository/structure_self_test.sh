#!/usr/bin/env bash
# Plants one violation at a time in a tiny tree: check-structure.sh must name each, and only those.
#   structure_self_test.sh ROOT
set -euo pipefail
check="$1/scripts/check-structure.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fresh_tree() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree"/{core/{base,device/cuda,ops/cuda,engine},io,parallel,launcher,tests}
  printf '#pragma once\n' > "$work/tree/core/base/clean.h"
  printf '#include "core/base/clean.h"\n#include <fmt/core.h>\n' > "$work/tree/core/engine/clean.cpp"
  printf '#include "core/engine/clean.h"\n#include <nlohmann/json.hpp>\n' > "$work/tree/io/clean.cpp"
  printf '#include "io/clean.h"\n#include <CLI/CLI.hpp>\n' > "$work/tree/launcher/clean.cpp"
}

# planted FILE TEXT RULE: with TEXT in FILE the check must fail, name FILE and speak of RULE.
planted() {
  fresh_tree
  printf '%b\n' "$2" > "$work/tree/$1"
  local output status=0
  output=$("$check" "$work/tree") || status=$?
  if [[ $status != 1 || $output != *"$1:"*"$3"* || $(wc -l <<< "$output") != 1 ]]; then
    echo "planted '$2' in $1, expected one report with '$3', got exit code $status and: $output"
    failures=$((failures + 1))
  fi
}

fresh_tree
if ! output=$("$check" "$work/tree"); then
  echo "a clean tree was refused: $output"
  failures=$((failures + 1))
fi
planted core/base/a.cpp '#include "core/engine/x.h"' "only what stands before"
planted core/ops/a.cpp '#  include "core/train/x.h"' "only what stands before"
planted core/engine/a.cpp '#include "io/x.h"' "nothing outside core"
planted core/engine/a.h '#pragma once\n#include "launcher/x.h"' "nothing outside core"
planted io/a.cpp '#include "parallel/x.h"' "io and core only"
planted parallel/a.cpp '#include "launcher/x.h"' "parallel and core only"
planted launcher/a.cpp '#include "tests/x.h"' "launcher, io, parallel and core"
planted core/engine/a.cpp '#include <nlohmann/json.hpp>' "nlohmann-json"
planted io/a.h '#pragma once\n#include <nlohmann/json_fwd.hpp>' "nlohmann-json"
planted io/a.cpp '#include <CLI/CLI.hpp>' "CLI11"
planted io/a.cpp '#include <spdlog/spdlog.h>' "spdlog"
planted core/ops/cuda/a.cu '#include <fmt/core.h>' "fmt"
planted core/engine/a.cpp '#include <oneapi/dnnl/dnnl.hpp>' "oneDNN"
planted core/engine/a.cpp '#include <cuda_runtime.h>' "CUDA"
planted core/base/a.cpp '#include <hdf5.h>' "HDF5"
planted parallel/a.cpp '#include <gloo/context.h>' "Gloo"
planted parallel/a.cpp '#include <nccl.h>' "NCCL"
planted core/base/a.cpp '#include <format>' "<format>"
planted core/base/a.cpp 'auto x = std::getenv("X");' "environment"
planted io/a.cpp '#pragma omp parallel for' "OpenMP"
planted core/base/a.cpp '// TO''DO later' "finish it"
planted core/base/a.h 'int x;' "#pragma once"
exit "$((failures > 0))"
