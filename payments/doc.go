// Package payments talks to Stripe about PaymentIntents and refunds: it creates
// an intent unconfirmed, confirms it, reads it, cancels it, refunds it, and lists
// both. Its work is to say of every call, whatever the network or the provider
// did, what is known about its effect:
//
//   - a nil error: the returned [Intent] or [Refund] is the provider's answer;
//   - [Declined] and [Refused]: a final no, nothing was charged by this call;
//   - [NotExecuted]: nothing happened, the same key is free to run;
//   - [Unknown]: it may have happened. After a confirm, Get the intent; after a
//     create, send it again under the same key; after a refund, ListRefunds (R12).
//
// Retries are this package's own, under the same key and within
// [Config].Timeout; the ones built into stripe-go are off, because they report
// the last error only and so hide an earlier unclear one (R13).
//
// It also reads the events that Stripe sends to a webhook, and of those only whom
// they are about: what happened is for Get to say.
//
// The package keeps no state, reads no environment, and touches none of
// stripe-go's globals. It does not know orders, where keys come from, or what
// to answer to whom. Nothing it returns or logs holds the API key, a client
// secret or the webhook's.
package payments
