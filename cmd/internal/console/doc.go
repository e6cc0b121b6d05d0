// Package console is the page /console of `orders dev` and `orders demo`: a person
// orders, picks a card and something that goes wrong, and watches the key's row
// walk through its recovery points, beside the provider's ledger and the mailbox.
// What it says at the end was asked of the database, the provider and the mailbox;
// nothing is assumed.
//
// Its orders go to an `orders serve` process of its own, with short leases, which
// is really killed when somebody asks for that, and which reaches the provider
// over a [wire.Wire] that can be cut. So most failures work with the stand-in and
// with Stripe's test mode alike.
//
// It charges cards on demand, with the API key of dev, and shows that key. So it is
// for the person at this machine: it answers to nobody else (see guard), and no
// other command mounts it.
//
// It changes no row itself, and knows of the protocol only what the tables say.
package console
