// Package payments calls Stripe for PaymentIntents and refunds, and verifies webhook
// events. Every call reports what is known about its effect:
//
//   - a nil error: the returned [Intent] or [Refund] is the provider's response;
//   - [Declined] and [Refused]: final, this call moved no money;
//   - [NotExecuted]: no effect; the same key can be used again;
//   - [Unknown]: the call may have had its effect. After a confirm, call Get; after a
//     create, repeat it with the same key; after a refund, call ListRefunds (R12).
//
// stripe-go's retries are disabled, because they hide an earlier unknown outcome (R13).
//
// No error and no log contains the API key, a client secret or the webhook secret.
package payments
