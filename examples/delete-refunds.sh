#!/usr/bin/env bash
# Deletes the operation of refunds from a shop, as docs/add-an-operation.md describes: the files that only
# refunds have, and lines of twelve others. It names each file that has changed so much that an edit no
# longer fits.
set -euo pipefail
cd "$(dirname "$0")/.."

before=$(mktemp)
unfit=0
edit() { # edit FLAGS EXPRESSION FILE...: perl edits each file; an edit that has to fit has one pattern
	local flags=$1 expression=$2 file
	shift 2
	for file in "$@"; do
		[ -e "$file" ] || continue # gone already
		cp "$file" "$before"
		perl "$flags" -e "$expression" "$file"
		if cmp -s "$file" "$before"; then
			echo "Correct $file by hand, because this edit changes nothing: $expression" >&2
			unfit=1
		fi
	done
}

git rm -r orders/refunds 'orders/refund*_test.go' 'orders/*/refunds.go' 'orders/*/refund*_test.go' \
  'api/refunds*' 'api/problems/*refund*' 'client/refunds*' 'client/typescript/test/*refunds*' \
  'cmd/*/refunds_test.go' 'internal/crash/testdata/mutants/refund-*.patch' examples/delete-refunds.sh

# The program
edit -ni 'print unless /refund/i' cmd/internal/app/app.go api/router.go orders/orderstest/orderstest.go
edit -ni 'print unless /h\.Refunds, err = / .. /^\t\t}$/' cmd/orders/keys.go
edit -ni 'print unless /range h\.Refunds/ .. /^\t\t}$/' cmd/orders/keys.go
edit -ni 'print unless /refunds[."]|Refunds/' cmd/orders/keys.go
edit -pi "s/ or refund's id/ id/" cmd/orders/keys.go
edit -ni 'print unless /range .Refunds/' cmd/orders/output.tmpl # the amount stays, because Stripe's dashboard can still refund
edit -ni 'print unless /^ +refunds:/ .. /payments/' .golangci.yml
edit -ni 'print unless /refunds/' .golangci.yml

# Its clients and pages
edit -ni 'print unless /Refunds an order/ .. /^$/' client/typescript/orders.ts
edit -ni 'print unless /async \w+Refunds?\(/ .. /^$/' client/typescript/orders.ts
edit -ni 'print unless /type Refund/' client/typescript/orders.ts
edit -ni 'print unless m{#tag/refunds/}' cmd/playground/internal/docs/page.html
edit -pi 's/ To give the money back, refund it: .*//' api/problems/order-not-cancelable.md
edit -pi 's/\[order-not-refundable\]\(order-not-refundable.md\), //' api/problems/order-not-cancelable.md
for line in '- `not_our_refund' '- `saved_500' '\| the response to a refund' '\| the account.s balance' '\| Stripe rejects a refund'; do
	edit -ni "print unless /^$line/" docs/failures.md
done
edit -0pi 's/ \[A script\].*//' docs/add-an-operation.md
edit -0pi 's/`bash examples\/delete-refunds.*\n\n//' docs/add-an-operation.md
edit -0pi 's/ If an edit does not fit.*?`make fmt generate`\.//' docs/add-an-operation.md

# The contract: what says how to refund, the table's row, the paragraph, the tag, and each path, link and component with
# Refund in its name, with the lines below it that are indented further.
edit -0pi 's/    In two problems, `retry` has two values:.*?\n\n//s' openapi.yaml
edit -pi 's/ payment or refund with a new key/ payment with a new key/' openapi.yaml
edit -pi 's/^    \| refund \|.*\n//' openapi.yaml
edit -0pi 's/`order-not-cancelable`: refund the\n +order instead\. /`order-not-cancelable`. /' openapi.yaml
edit -ni 'print unless /^    .POST \S+refunds. / .. /^$/' openapi.yaml
edit -ni '
  $indent = /^( *)\S/ ? length $1 : 99;
  $entry = 99 if !defined $entry || $indent <= $entry;
  $entry = $indent if $entry == 99 && /^ *(\w*Refund\w*|[Rr]emaining|\S*\/refunds\S*|- name: Refunds)(:|$)/;
  print if $entry == 99;
' openapi.yaml
rm -f "$before"
exit $unfit
