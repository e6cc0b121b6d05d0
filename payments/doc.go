// Package payments calls Stripe for PaymentIntents and refunds, and verifies webhook
// events. Every call reports what is known about its effect:
//
//   - [Declined] and [Refused] are final: this call moved no money;
//   - [NotExecuted]: no effect;
//   - [Unknown]: after a confirm, call Get; after a create, repeat it with the same key;
//     after a refund, call ListRefunds (R12, read first).
//
// No error and no log contains a secret.
package payments
