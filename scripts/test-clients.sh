#!/usr/bin/env bash
# Runs the official QStash clients against gantry qstash dev: installs the
# JavaScript one, at the versions of its lock file and without running anything of
# it, and starts the tests. It needs Node 18 at least, which is taken from the
# system's packages if it is missing; 20 is what it is tried with.
set -euo pipefail
cd "$(dirname "$0")/.."

have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

give_up() {
  echo "test-clients: $1" >&2
  exit 1
}

if ! have node || ! have npm; then
  if have apt-get; then
    echo "test-clients: installing nodejs and npm"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends nodejs npm </dev/null
  elif have brew; then
    brew install node
  fi
fi
have node && have npm || give_up "please install Node 20 with npm"
major=$(node --version | sed 's/^v\([0-9]*\)\..*/\1/')
[ "$major" -ge 18 ] || give_up "node is version $major; please install Node 20"

clients=webhook/qstash/clienttest
(cd "$clients/testdata/node" && npm ci --ignore-scripts --no-audit --no-fund </dev/null)
go vet -tags clients "./$clients"
go test -tags clients -count=1 "$@" "./$clients"
