#!/usr/bin/env bash
# Checks spec/idempotency.spectral.yaml: it finds nothing in openapi.yaml and in a document that uses
# spec/idempotency.components.yaml, and each fault of a document that describes nothing.
# Arguments are the command that runs Spectral.
set -euo pipefail
cd "$(dirname "$0")/testdata"
ruleset=../../idempotency.spectral.yaml

"$@" lint --ruleset ../orders.spectral.yaml --fail-severity=hint ../../../openapi.yaml
"$@" lint --ruleset "$ruleset" --fail-severity=hint described.yaml
# The status is 1, because there are findings.
{ "$@" lint --ruleset "$ruleset" --format text undescribed.yaml || true; echo; } |
	sed -n 's/^.*undescribed.yaml:\([0-9]*\):[0-9]* \([a-z]*\) \([a-z-]*\) .*/\1 \2 \3/p' | diff expected.txt -
