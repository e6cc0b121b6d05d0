#!/usr/bin/env bash
# Deletes the operation of refunds from a shop, as docs/add-an-operation.md describes: what only refunds
# have, lines of 27 other files, and the tests of later changes at the provider, which begin with refunds.
set -euo pipefail
cd "$(dirname "$0")/.."

git rm -r orders/refunds 'orders/refund*_test.go' 'orders/*/refunds.go' 'orders/*/refunds_test.go'
git rm 'orders/changes*_test.go'
git rm 'api/refunds*' 'api/problems/*refund*' 'client/refunds*' cmd/orders/refunds_test.go examples/delete-refunds.sh

perl -ni -e 'print unless /refund/i' cmd/internal/app/app.go orders/orderstest/orderstest.go \
  api/client_test.go api/generated_internal_test.go cmd/orders/readiness_test.go cmd/orders/roles_test.go \
  cmd/playground/run_test.go client/typescript/test/*.ts
perl -pi -e 's/ To give the money back, refund it: .*//; s/\[order-not-refundable\]\(order-not-refundable.md\), //' api/problems/order-not-cancelable.md
perl -ni -e 'print unless m{/refunds refund-}' examples/clients/order.*
perl -0pi -e 's/`order-not-cancelable`: refund the\n +order instead\. /`order-not-cancelable`. /' openapi.yaml
perl -ni -e 'print unless /range .Refunds/' cmd/orders/history.txt.tmpl # the amount stays, because Stripe's dashboard can still refund
perl -ni -e 'print unless m{#tag/refunds/}' api/docs/page.html
perl -pi -e 's/, `cancelOrder` and `createRefund` have/ and `cancelOrder` have/; s/, `listOrders`, `getRefund`, `listRefunds` and/, `listOrders` and/' client/typescript/README.md
perl -ni -e 'print unless /refundProblem/' api/problem.go
perl -ni -e 'print unless /"a (refund.s record without an object|lost refund)": \{/ .. /^\t\t\},$/' orders/reconcile/reconcile_test.go
perl -ni -e 'print unless /of := operations\.Target/ .. /^\t\t}$/ or /refunds[."]|Refunds/' cmd/orders/keys.go
perl -ni -e 'print unless /f\.exec\(`INSERT INTO refunds/ .. /FROM orders`\)/ or /refund := f\.keys/ .. /of the key of its order/' cmd/orders/keys_test.go
perl -ni -e 'print unless /Refunds an order/ .. /^$/ or /async \w+Refunds?\(/ .. /^$/ or /type Refund/' client/typescript/orders.ts
perl -ni -e 'print unless /^ +refunds:/ .. /payments/ or /refunds/' .golangci.yml
perl -ni -e 'print unless /stepId: otherOperation/ .. /key-reused/ or /workflowId: partialRefunds/ .. /amount_refunded/' orders.arazzo.yaml

# In the contract: the paragraph, the tag, and each path, link and component with Refund in its name,
# with the lines below it that are indented further.
perl -ni -e '
  $paragraph = /^    .POST \S+refunds. / .. /^$/;
  $indent = /^( *)\S/ ? length $1 : 99;
  $entry = 99 if !defined $entry || $indent <= $entry;
  $entry = $indent if $entry == 99 && /^ *(\w*Refund\w*|\S*\/refunds\S*|- name: Refunds)(:|$)/;
  print if $entry == 99 && !$paragraph;
' openapi.yaml
