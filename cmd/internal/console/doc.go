// Package console is the page /console of `orders dev` and `orders demo`. On it a
// person places an order, picks a card and a failure, and sees the key's row pass
// its recovery points, beside the provider's payments and the receipts. The final
// checks read the database, the provider and the mailbox.
//
// Its orders go to an `orders serve` process of its own, with short leases, which
// can be killed. It reaches the provider through a [faultproxy.Proxy]. So most
// failures work with the stand-in and with Stripe's test mode alike.
//
// The page charges cards with the API key of dev, and shows that key. It therefore
// answers requests from this machine only (see guard), and no other command mounts
// it.
//
// It knows of the protocol only what the tables show. It changes no row itself, with one
// exception: if the customer does not respond to the bank, it makes the order older
// than the charge window.
package console
