#!/usr/bin/env bash
# The rules about who may include what, and a few that grep can hold.
#   scripts/check-structure.sh [ROOT]      prints each violation as FILE:LINE: RULE; exit code 1
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"
found=0

# report RULE: each line of stdin (FILE:LINE:TEXT) is a violation.
report() {
  local line
  while IFS= read -r line; do
    echo "$(cut -d: -f1,2 <<< "$line"): $1: $(cut -d: -f3- <<< "$line")"
    found=1
  done
}

# code FOLDER...: grep over the C++ and CUDA files of the folders that exist. First argument: regex.
code() {
  local pattern=$1 folder folders=()
  shift
  for folder; do
    [[ -e $folder ]] && folders+=("$folder")
  done
  [[ ${#folders[@]} -gt 0 ]] || return 0
  grep -rnE --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' -- \
    "$pattern" "${folders[@]}" || true
}

include='^[[:space:]]*#[[:space:]]*include[[:space:]]*'

# only LABEL REGEX FOLDER: what the folder includes by quotes must match (Highway wants its own
# headers so too; that it stays where it belongs is checked below).
only() {
  report "$1" < <(code "$include\"" "$3" | grep -vE ":[[:space:]]*#[[:space:]]*include[[:space:]]*\"($2|hwy)/" || true)
}

# Arrows inside the core: a folder includes itself and the folders before it in this list.
order=(base device ops model store optim plan engine train)
for ((i = 0; i < ${#order[@]}; i++)); do
  later=$(IFS='|'; echo "${order[*]:i+1}")
  [[ -n $later ]] || continue
  report "core/${order[i]} may include only what stands before it (${order[*]})" \
    < <(code "$include\"core/($later)/" "core/${order[i]}")
done
for folder in core/*/; do
  [[ -d $folder ]] || continue
  name=$(basename "$folder")
  [[ " ${order[*]} " == *" $name "* ]] ||
    report "a folder of the core must have its place in the order (${order[*]})" <<< "$folder:0:"
done

# Arrows between the folders: launcher -> parallel, io -> core.
only "core includes nothing outside core" core core
only "io includes io and core only" 'io|core' io
only "parallel includes parallel and core only" 'parallel|core' parallel
only "launcher includes launcher, io, parallel and core only" 'launcher|io|parallel|core' launcher

# Third-party libraries stay in few places, so that each can be replaced.
# private LIBRARY HEADER-REGEX PATH-REGEX: the headers may be included only by files matching.
private() {
  report "$1 may be included only in $3" \
    < <(code "$include[<\"]($2)" core io parallel launcher | grep -vE "^($3)" || true)
}
private nlohmann-json 'nlohmann/' 'io/[^:]*\.cpp:|launcher/[^:]*\.cpp:'
private CLI11 'CLI/' 'launcher/'
private spdlog 'spdlog/' 'launcher/[^:]*\.cpp:'
# A header with fmt in it would reach nvcc sooner or later.
private fmt 'fmt/' '[^:]*\.cpp:'
private oneDNN '(oneapi/)?dnnl' 'core/(device|ops)/cpu/'
private Highway 'hwy/' 'core/[a-z]+/[^:]*\.cpp:|core/[a-z]+/cpu/'
private HDF5 'hdf5(_hl)?\.h|H5' 'io/hdf5/([^:]*\.cpp|handle\.h):'
private xxHash 'xxhash|xxh3' 'io/[^:]*\.cpp:'
private CUDA 'cuda|cublas|nv(tx|ml|toolsext)' 'core/(device|ops)/cuda/'
private cuDNN 'cudnn' 'core/(device|ops)/cuda/'
private NCCL 'nccl\.h' 'parallel/nccl/'
private Gloo 'gloo/' 'parallel/gloo/'
if (($(code "$include[<\"]cudnn_frontend" core io parallel launcher | cut -d: -f1 | sort -u | wc -l) > 1)); then
  report "cudnn-frontend may be included in one file only" \
    < <(code "$include[<\"]cudnn_frontend" core io parallel launcher)
fi

report "<format> is not available in GCC 12; use fmt in a .cpp" \
  < <(code "$include<format>" core io parallel launcher)
# The request is in the options and in the run folder; the environment would be a second, hidden one.
report "no settings from the environment in the libraries" \
  < <(code '\b(secure_)?getenv[[:space:]]*\(' core io parallel)
report "no OpenMP in our own code: threads belong to the device" \
  < <(code '#[[:space:]]*pragma[[:space:]]+omp|omp\.h' core io parallel launcher)
report "finish it or refuse it by name" \
  < <(code '\b(TODO|FIXME|XXX|HACK)\b' core io parallel launcher tests)

# Highway compiles -inl.h files several times in one translation unit; they guard themselves.
while IFS= read -r header; do
  grep -qx '#pragma once' "$header" || report "a header starts with #pragma once" <<< "$header:1:"
done < <(find core io parallel launcher -name '*.h' ! -name '*-inl.h' 2> /dev/null)

exit "$found"
