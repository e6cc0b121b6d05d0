#!/usr/bin/env bash
# Deletes the operation of refunds from a shop, as docs/add-an-operation.md describes: what only refunds
# have, and lines of other files. It names each file that has changed so much that an edit no longer fits.
set -euo pipefail
cd "$(dirname "$0")/.."

before=$(mktemp)
unfit=0
edit() { # edit FLAGS EXPRESSION FILE...: perl edits each file
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

git rm -r orders/refunds 'orders/refund*_test.go' 'orders/*/refunds.go' 'orders/*/refund*_test.go'
git rm 'api/refunds*' 'api/problems/*refund*' 'client/refunds*' cmd/orders/refunds_test.go examples/delete-refunds.sh

edit -ni 'print unless /refund/i' cmd/internal/app/app.go cmd/internal/app/server.go orders/orderstest/orderstest.go \
  api/router.go \
  api/client_test.go cmd/orders/readiness_test.go cmd/orders/roles_test.go \
  cmd/playground/run_test.go $(grep -li refund client/typescript/test/*.ts)
edit -pi 's/ To give the money back, refund it: .*//' api/problems/order-not-cancelable.md
edit -pi 's/\[order-not-refundable\]\(order-not-refundable.md\), //' api/problems/order-not-cancelable.md
edit -ni 'print unless m{/refunds refund-}' $(grep -l '/refunds refund-' examples/clients/order.*)
edit -0pi 's/`order-not-cancelable`: refund the\n +order instead\. /`order-not-cancelable`. /' openapi.yaml
edit -ni 'print unless /range .Refunds/' cmd/orders/output.tmpl # the amount stays, because Stripe's dashboard can still refund
edit -ni 'print unless m{#tag/refunds/}' cmd/playground/internal/docs/page.html
edit -pi 's/, `cancelOrder`, `createRefund` and `refundRemaining` have/ and `cancelOrder` have/' client/typescript/README.md
edit -pi 's/, `listOrders`, `getRefund`, `listRefunds` and/, `listOrders` and/' client/typescript/README.md
edit -ni 'print unless /Remaining/' api/problem.go internal/httpjson/errors.go
edit -ni 'print unless /Remaining/' client/errors.go
edit -ni 'print unless /rejected\.Remaining > 0/ .. /^\t\t}$/' orders/orderstest/fixture.go
edit -ni 'print unless /"a refund of a lost order": \{/ .. /^\t\t\},$/' orders/reconcile/reconcile_test.go
edit -ni 'print unless /h\.Refunds, err = / .. /^\t\t}$/ or /range h\.Refunds/ .. /^\t\t}$/ or /refunds[."]|Refunds/' cmd/orders/keys.go
edit -ni 'print unless /f\.exec\(`INSERT INTO refunds/ .. /FROM orders`\)/ or /refund := f\.keys/ .. /of the key of its order/' cmd/orders/keys_test.go
edit -ni 'print unless /Refunds an order/ .. /^$/ or /async \w+Refunds?\(/ .. /^$/ or /type Refund/' client/typescript/orders.ts
edit -ni 'print unless /^ +refunds:/ .. /payments/ or /refunds/' .golangci.yml
edit -ni 'print unless /stepId: otherOperation/ .. /key-reused/ or /workflowId: partialRefunds/ .. /amount_refunded/' api/orders.arazzo.yaml

edit -pi 's/orders, refunds and cancels/orders and cancels/' api/orders.arazzo.yaml
edit -pi 's/ \[A script\].*//' docs/add-an-operation.md
edit -ni 'print unless /delete-refunds/' docs/add-an-operation.md
edit -pi 's{(, as|,| \() ?`orders/refunds/create\.go`( does|\))?}{}' docs/add-an-operation.md docs/guides/where-to-change.md docs/guides/swap-the-provider.md
edit -pi 's{, \[`(createRefund|refundRun)\.\w+`\]\(\S+\)}{}g' docs/rules.md
edit -ni 'print unless /^- `(not_our_refund|saved_500)`/' docs/failures.md

# In the contract: the paragraph, the tag, and each path, link and component with Refund in its name,
# with the lines below it that are indented further.
edit -ni '
  $paragraph = /^    .POST \S+refunds. / .. /^$/;
  $indent = /^( *)\S/ ? length $1 : 99;
  $entry = 99 if !defined $entry || $indent <= $entry;
  $entry = $indent if $entry == 99 && /^ *(\w*Refund\w*|[Rr]emaining|\S*\/refunds\S*|- name: Refunds)(:|$)/;
  print if $entry == 99 && !$paragraph;
' openapi.yaml
rm -f "$before"
exit $unfit
