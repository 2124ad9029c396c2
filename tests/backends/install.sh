#!/usr/bin/env bash
# Unpacks the back-ends that the tests in tests/backends run, without root, once per user and not
# per checkout: VictoriaMetrics, Prometheus with promtool, Alertmanager with amtool. All are Debian's
# packages of one release, the first that has them, whatever release this machine runs. Does nothing
# where they are there already, and leaves no service running: the tests start their own.
set -euo pipefail
release=trixie
packages=(victoria-metrics prometheus promtool prometheus-alertmanager)
programs=(victoria-metrics prometheus promtool prometheus-alertmanager amtool)
folder="${XDG_CACHE_HOME:-$HOME/.cache}/costlens-tests/backends"

complete() {
  local program
  for program in "${programs[@]}"; do
    [ -x "$folder/usr/bin/$program" ] || return 1
  done
}

if complete; then exit 0; fi
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  echo "needs Debian's apt-get and dpkg: put ${programs[*]} into $folder/usr/bin yourself" >&2
  exit 1
fi
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/unpacked"

# The machine's own mirror, whatever it is, with an index of our own: nothing of its apt changes.
# What is cut to its first line is read to its end: a writer that meets a closed pipe is a failure.
first() { sed -n 1p; }
mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | first)"
: "${mirror:=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | first)}"
: "${mirror:=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 's/^URIs: *//p' | first)}"
keyring="$({ find /usr/share/keyrings -name 'debian-archive-keyring.*' 2>/dev/null || true; } |
  sort | first)"
if [ -z "$mirror" ] || [ -z "$keyring" ]; then
  echo "needs an apt source of Debian, and the package debian-archive-keyring" >&2
  exit 1
fi
echo "deb [signed-by=$keyring] $mirror $release main" >"$work/sources.list"
options=(
  -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=-
  -o Dir::State::lists="$work/state/lists" -o Dir::Cache="$work/cache"
  -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none
)
apt-get "${options[@]}" -q update
(cd "$work" && apt-get "${options[@]}" -q download "${packages[@]}")
for package in "$work"/*.deb; do
  dpkg -x "$package" "$work/unpacked"
done
# A newer release's programs need not run with this one's libraries: better said here than later.
for program in "${programs[@]}"; do
  if ! "$work/unpacked/usr/bin/$program" --version >"$work/version" 2>&1; then
    echo "$program of Debian $release does not run here:" >&2
    cat "$work/version" >&2
    exit 1
  fi
done
mkdir -p "$(dirname "$folder")"
rm -rf "$folder"
mv "$work/unpacked" "$folder"
