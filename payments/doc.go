// Package payments calls Stripe for PaymentIntents and refunds: it creates an intent
// unconfirmed, confirms it, reads it, cancels it, refunds it, and lists both. For
// every call it returns what is known about its effect, whatever the network or the
// provider did:
//
//   - a nil error: the returned [Intent] or [Refund] is the provider's response;
//   - [Declined] and [Refused]: final, this call charged nothing;
//   - [NotExecuted]: nothing happened, and the same key can be used again;
//   - [Unknown]: the call may have had its effect. After a confirm, Get the intent;
//     after a create, send it again under the same key; after a refund, ListRefunds
//     (R12).
//
// An order's path through the package: intent.go (the calls), send.go (attempts
// under the same key within [Config].Timeout, and whether a request was sent),
// classify.go and errors.go (what the result means). stripe-go's own retries are off, because they return only the last error and hide an earlier unknown one
// (R13).
//
// The package also verifies webhook events. It returns only which object an event is
// about; the state of that object is read with Get.
//
// The package keeps no state, reads no environment and does not change globals of
// stripe-go. It does not know orders, how keys are derived, or HTTP responses of the
// API. Nothing it returns or logs contains the API key, a client secret or the
// webhook's secret.
package payments
