#!/usr/bin/env bash
# Installs what scripts/packages.txt lists for the groups given, where it is missing or too old.
#   scripts/setup.sh GROUP...        e.g. scripts/setup.sh build test
# Safe to run again: with everything in place it changes nothing and needs neither root nor network.
# Exit code 2 where it cannot install: it then says which packages are missing and why each is needed.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
source "$root/scripts/common.sh"

# One line for each listed package of the groups that is missing or older than its floor:
# "package<TAB>floor<TAB>installed version or none<TAB>why".
missing_packages() {
  local group package floor why installed
  while read -r group package floor why; do
    [[ -z $group || $group == \#* ]] && continue
    [[ " $* " == *" $group "* ]] || continue
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$package" 2>/dev/null || true)
    if [[ $installed == "installed "* ]]; then
      installed=${installed#installed }
    else
      installed=none
    fi
    # An epoch ("1:") is Debian's own and says nothing about the version inside.
    if [[ $installed == none ]] || dpkg --compare-versions "${installed#*:}" lt "$floor"; then
      printf '%s\t%s\t%s\t%s\n' "$package" "$floor" "$installed" "$why"
    fi
  done < "$root/scripts/packages.txt"
}

# refuse REASON: names what is missing, then gives up with the exit code for what a user can mend.
refuse() {
  local package floor installed why names=()
  say "$1"
  say "Missing packages:"
  while IFS=$'\t' read -r package floor installed why; do
    names+=("$package")
    [[ $installed == none ]] && installed="not installed" || installed="installed: $installed"
    printf '  %-20s %-8s %-24s %s\n' "$package" ">= $floor" "$installed" "$why" >&2
  done <<< "$missing"
  say "As root: apt-get update && apt-get install ${names[*]}"
  exit 2
}

# Runs a command as root; the caller has made sure that one of the two ways is open.
as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  else
    sudo -- "$@"
  fi
}

install_packages() {
  if [[ $(id -u) != 0 ]]; then
    # Without a terminal sudo could only hang on its password prompt.
    if ! command -v sudo > /dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2> /dev/null; }; then
      refuse "Packages are missing, and installing them needs root or sudo."
    fi
  fi
  local names
  mapfile -t names < <(cut -f1 <<< "$missing")
  say "Installing: ${names[*]}"
  # A failed update still leaves the old lists, which may do; what counts is the install.
  as_root apt-get -qq update || say "apt-get update failed; trying with the package lists at hand."
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends "${names[@]}" > /dev/null ||
    refuse "apt-get could not install what is missing (no network, or a release without these packages?)."
}

# The headers of cudnn-frontend, at the pinned version, into the build tree. Without them the build
# leaves cuDNN's attention out and our own kernel does the work, so nothing here is fatal.
install_cudnn_frontend() {
  local target="$root/build/deps/cudnn-frontend" machine stamp
  machine=$(uname -m)
  stamp=$(cksum < "$root/scripts/requirements-cuda.txt")
  if [[ -f $target/stamp && $(< "$target/stamp") == "$stamp" ]]; then
    return
  fi
  if ! python3 -m pip --version > /dev/null 2>&1; then
    say "No pip: the cuDNN attention backend is off."
    return
  fi
  say "Fetching the headers of cudnn-frontend"
  rm -rf "$target"
  # The wheel is asked for by its own tags, whatever Python runs here: only its headers matter.
  if python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
      --target "$target" --no-deps --require-hashes --only-binary :all: \
      --implementation cp --abi cp312 --python-version 3.12 \
      --platform "manylinux_2_28_$machine" --platform "manylinux_2_27_$machine" \
      -r "$root/scripts/requirements-cuda.txt"; then
    rm -rf "$target/cudnn"  # the Python part
    echo "$stamp" > "$target/stamp"
  else
    rm -rf "$target"
    say "cudnn-frontend could not be fetched: the cuDNN attention backend is off."
  fi
}

[[ $# -gt 0 ]] || { say "usage: scripts/setup.sh GROUP... (groups: see scripts/packages.txt)"; exit 2; }
groups=("$@")
cuda=$(find_nvcc)
# Where pip is there already, whoever brought it, Debian's is not wanted.
if [[ -n $cuda ]] && ! python3 -m pip --version > /dev/null 2>&1; then
  groups+=(cuda)
fi
if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  say "This is not Debian or Ubuntu. Install these with your package manager, then use --no-setup:"
  grep -E "^($(IFS='|'; echo "${groups[*]}")) " "$root/scripts/packages.txt" | sed 's/^/  /' >&2
  exit 2
fi
missing=$(missing_packages "${groups[@]}")
if [[ -n $missing ]]; then
  install_packages
  missing=$(missing_packages "${groups[@]}")
  [[ -z $missing ]] || refuse "This release's packages are older than MegaTrain needs."
fi
if [[ -n $cuda ]]; then
  install_cudnn_frontend
fi
