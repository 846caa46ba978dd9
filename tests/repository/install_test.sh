#!/usr/bin/env bash
# Installs a build, moves the tree, and runs the program from there with nothing to help it.
#   install_test.sh BUILD-DIR TREE      leaves the moved tree at TREE
set -euo pipefail
build=$1
tree=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }

cmake --install "$build" --prefix "$work/first" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
rm -rf "$tree"
mkdir -p "${tree%/*}"
mv "$work/first" "$tree"
program="$tree/bin/megatrain"

readelf -d "$program" | grep -q '(RPATH).*\$ORIGIN/../lib/megatrain' ||
  fail "the program has no DT_RPATH to its libraries: $(readelf -d "$program" | grep -i path || true)"
(cd / && env -i "$program" --help) > "$work/help" 2>&1 || { cat "$work/help"; fail "--help failed"; }
[[ -s $work/help ]] || fail "--help printed nothing"

# Every library comes from the tree, but for the C library's own and CUDA's, which are left out on
# purpose.
strangers=$(cd / && env -i PATH="$PATH" ldd "$program" |
  grep -vE '^[[:space:]]*(linux-vdso|/lib.*/ld-linux|lib(c|m|dl|rt|pthread|resolv|util|anl)\.so)' |
  grep -vE '^[[:space:]]*lib(cuda|cudart|cublas|cublasLt|cudnn[a-z_]*|nccl|nvrtc|nvJitLink|nvidia-[a-z]*)\.so' |
  grep -vF "$tree/" || true)
[[ -z $strangers ]] || fail "libraries from outside the tree:"$'\n'"$strangers"

# What was bundled must be enough for itself too: no bundled library may look elsewhere first.
for library in "$tree"/lib/megatrain/*.so*; do
  [[ -L $library ]] && continue
  ! readelf -d "$library" | grep -qE '\((RPATH|RUNPATH)\)' || fail "$library brings a search path of its own"
done
[[ -f $tree/include/megatrain/core/base/types.h ]] || fail "headers are missing"
! grep -rlF "$build" "$tree/lib/cmake" || fail "the package's files name the build folder"
