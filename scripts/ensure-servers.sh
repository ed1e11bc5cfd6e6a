#!/usr/bin/env bash
# Brings what the tests need beside Go: a redis-server (7.0 at least), the
# binaries of PostgreSQL, a C compiler for the race detector, and make. What is
# there already is left alone; the tests start private servers of their own.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }

have_redis() { have "${GANTRY_REDIS_SERVER:-redis-server}"; }

have_postgres() {
  if [ -n "${GANTRY_POSTGRES_BIN:-}" ]; then
    [ -x "$GANTRY_POSTGRES_BIN/initdb" ]
    return
  fi
  have initdb && have postgres && return
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

have_compiler() { have "${CC:-gcc}" || have cc || have clang; }

# missing prints, for one kind of package manager, what has to be installed.
missing() {
  have_redis || echo "$1"
  have_postgres || echo "$2"
  have_compiler || echo "$3"
  have make || echo make
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

give_up() {
  echo "ensure-servers: $1" >&2
  exit 1
}

install_with_apt() {
  # The tests start their own servers: no service has to be started now.
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -q -y --no-install-recommends "$@" </dev/null
}

check_redis_version() {
  local version
  version=$("${GANTRY_REDIS_SERVER:-redis-server}" --version | sed -n 's/.* v=\([0-9]*\)\..*/\1/p')
  [ "${version:-0}" -ge 7 ] ||
    give_up "redis-server is older than 7.0; install a newer one and name it in GANTRY_REDIS_SERVER"
}

if [ -n "$(missing redis postgresql gcc)" ]; then
  if have apt-get; then
    mapfile -t packages < <(missing redis-server postgresql 'gcc
libc6-dev')
    echo "ensure-servers: installing ${packages[*]}"
    install_with_apt "${packages[@]}"
  elif have brew; then
    # shellcheck disable=SC2046 # one package a word
    brew install $(missing redis postgresql@17 gcc)
  fi
  left=$(missing redis-server postgresql gcc | paste -s -d ' ' -)
  [ -z "$left" ] || give_up "please install: $left (or set GANTRY_REDIS_SERVER to a redis-server and \
GANTRY_POSTGRES_BIN to the folder of initdb and postgres)"
fi
check_redis_version
