#!/usr/bin/env bash
# Checks payment.pml with Spin, then that each variant breaks: make -C spec model
set -euo pipefail
cd "$(dirname "$0")"
for tool in spin gcc; do
	command -v $tool >/dev/null || { echo "model: $tool is missing; on Debian: apt-get install spin gcc" >&2; exit 1; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp payment.pml "$folder" && cd "$folder"

# verify FAULTS [VARIANT [SIZE OF THE HASH TABLE]] sets states, seconds, and the comment of the first assertion that failed.
verify() {
	rm -f payment.pml.trail
	spin -a "-DFAULTS=$1" ${2:+"-D$2"} payment.pml >/dev/null
	gcc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -DMEMLIM=14000 -o pan pan.c
	started=$SECONDS
	./pan -m1000000 "-w${3:-24}" >result
	seconds=$((SECONDS - started))
	if grep -q 'max search depth too small\|memory limit' result; then cat result >&2; exit 1; fi
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' result)
	violation=
	if [ -f payment.pml.trail ]; then
		spin -T -t "-DFAULTS=$1" ${2:+"-D$2"} payment.pml >history
		line=$(sed -n 's/^spin: payment.pml:\([0-9]*\), Error: assertion violated.*/\1/p' history | head -n 1)
		violation=$(sed -n "${line}s/.*\/\* *\(.*[^ ]\) *\*\/.*/\1/p" payment.pml)
	fi
}

# history prints the actions that led to the violation.
history() { sed -nE 's/^([a-z-]+)( ([01]))? \|.*/\1\3/p' history | paste -sd' ' | fold -sw 90 | sed 's/^/    /'; }

verify "${FAULTS:-3}" "" 27
if [ -n "$violation" ]; then
	echo "payment.pml violates: $violation" && history
	exit 1
fi
printf '%-15s %9s states in %3s s, no violation\n' payment.pml "$states" "$seconds"

failed=0
for variant in ONE_CALL NO_FENCE DECLINE_STORED NEW_ROW_SEARCH NO_LEASE CANCEL_NOT_DURABLE CANCEL_ANSWERED_EARLY LATE_BY_DAYS; do
	verify 3 $variant
	if [ -z "$violation" ]; then
		echo "$variant: no violation found" && failed=1 && continue
	fi
	printf '%-15s %9s states in %3s s, violates: %s\n' $variant "$states" "$seconds" "$violation" && history
done
exit $failed
