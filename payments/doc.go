// Package payments calls Stripe for PaymentIntents and refunds, and verifies webhook
// events. It also has what every step that calls needs: deadlines, provider keys and the metadata by
// which payments and refunds are found. Every call reports what is known about its effect:
//
//   - [Declined] and [Refused] are final: this call moved no money. But if it was a confirm, cancel the intent before
//     you store the failure (R23, cancel first);
//   - [NotExecuted] and [NotOffered]: no effect;
//   - [UnexpectedState] and [KeyUsed]: maybe the effect of an earlier call;
//   - [Unknown]: after a confirm, call Get; after a create, repeat it with the same key;
//     after a refund, call ListRefunds (R12, read first).
//
// No error and no log contains a secret.
package payments
