#!/usr/bin/env bash
# Runs every fuzz target of the module for a bounded time: fuzz.sh 30s
set -euo pipefail
time=${1:-30s}
count=0
while IFS=: read -r file declaration; do
  name=${declaration#func }
  name=${name%%(*}
  echo "fuzz: $name in $(dirname "$file") for $time"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$(dirname "$file")" </dev/null
  count=$((count + 1))
done < <(grep -rH --include='*_test.go' '^func Fuzz' . | sort)
[ "$count" -gt 0 ] || { echo "fuzz: no target found" >&2; exit 1; }
