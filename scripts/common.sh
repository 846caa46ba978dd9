# Shared by the scripts; to be sourced.

say() { printf '%s\n' "$*" >&2; }

# Path of the CUDA compiler, empty where there is none.
find_nvcc() {
  command -v nvcc || { [[ -x /usr/local/cuda/bin/nvcc ]] && echo /usr/local/cuda/bin/nvcc; } || true
}

# Compute capability of the first GPU as CMake writes architectures (90), empty without a GPU.
gpu_architecture() {
  command -v nvidia-smi > /dev/null || return 0
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null |
    sed -n '1{s/[^0-9]//g;p}' || true
}

# CMake settings that choose the CUDA compiler and one architecture: the GPU's own, or, where the
# code can only be compiled, that of the H100 and H200. Empty without nvcc.
cuda_settings() {
  local nvcc architecture
  nvcc=$(find_nvcc)
  [[ -n $nvcc ]] || return 0
  architecture=$(gpu_architecture)
  printf '%s\n' "-DCMAKE_CUDA_COMPILER=$nvcc" "-DCMAKE_CUDA_ARCHITECTURES=${architecture:-90}"
}

# build_preset PRESET [CMAKE-SETTING...] [-- TARGET...]: configures and builds, quietly unless it
# fails. ccache is used where it is installed.
build_preset() {
  local preset=$1 settings=() log
  shift
  while [[ $# -gt 0 && $1 != -- ]]; do
    settings+=("$1")
    shift
  done
  [[ $# -gt 0 ]] && shift
  if command -v ccache > /dev/null; then
    settings+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
               -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
  fi
  (
    cd "$root"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    cmake --preset "$preset" "${settings[@]}" > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
    cmake --build --preset "$preset" ${1+--target "$@"}
  )
}
