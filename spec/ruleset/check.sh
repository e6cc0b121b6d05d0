#!/usr/bin/env bash
# Checks spec/idempotency.spectral.yaml: it finds nothing in openapi.yaml and in a document that uses
# spec/idempotency.components.yaml, and each fault of a document that describes nothing.
# Arguments are the command that runs Spectral.
set -euo pipefail
cd "$(dirname "$0")/testdata"
ruleset=../../idempotency.spectral.yaml

"$@" lint --ruleset "$ruleset" --fail-severity=hint ../../../openapi.yaml
"$@" lint --ruleset "$ruleset" --fail-severity=hint described.yaml
# The status is 1, because there are findings.
{ "$@" lint --ruleset "$ruleset" --format text undescribed.yaml || true; echo; } |
	sed -n 's/^.*undescribed.yaml:\([0-9]*\):[0-9]* \([a-z]*\) \([a-z-]*\) .*/\1 \2 \3/p' | diff - <(cat <<'EOF'
4 error idempotency-key-declared
6 error idempotency-in-progress-documented
6 error idempotency-reuse-documented
6 warning idempotency-unavailable-retry-after
7 warning idempotency-replay-marked
11 error idempotency-key-required
11 warning idempotency-key-bounded
11 warning idempotency-key-bounded
12 warning idempotency-unavailable-retry-after
13 warning idempotency-replay-marked
14 warning idempotency-in-progress-retry-after
14 warning idempotency-problem-details
15 information idempotency-retry-verdict
20 error idempotency-in-progress-documented
20 error idempotency-reuse-documented
20 warning idempotency-unavailable-retry-after
21 warning idempotency-replay-marked
EOF
	)
