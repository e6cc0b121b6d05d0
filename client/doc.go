// Package client calls the orders API so that each request takes effect exactly once.
// It is also the reference for authors of clients in any language.
//
//	key := client.NewKey()
//	// Store the key with the purchase before the first send.
//	order, err := orders.CreateOrder(ctx, key, params)
//
// # One purchase, one key
//
// A key identifies one purchase or one refund. Create the key once, and store it with
// the request before the first send. After a crash, send the stored request with the
// stored key: the API returns the response that was missed. If the key was only in
// memory, it is lost, and a request with a new key charges the customer a second time.
//
// Only [NewKey] creates keys, and no sending function calls it. Retries happen inside
// the call. Never call NewKey in a retry loop.
//
// # The rules
//
// A client needs these five rules. [Client.Do] implements them.
//
//  1. Every POST has an Idempotency-Key. All attempts have the same key and the same
//     bytes. Redirects are not followed, because another server may not know the key.
//  2. A complete response is final in three cases. Status 201 with a JSON object is
//     success. Status 202 with an action object means that the customer must approve
//     the payment; afterwards, send the same request with the same key. A problem
//     document (application/problem+json) is final if its retry member is corrected,
//     new-key or never. With corrected, this attempt did not use the key: fix the
//     request and send it with the same key. With new-key, the key has its final
//     response: another attempt is another payment, which only the caller can decide.
//  3. After anything else, send the same request again. This covers the retry member
//     same-key, a missing or incomplete response, a proxy's error page, and a response
//     without a known retry member. The status alone decides nothing: a 503 may come
//     from the API, or from a proxy that never forwarded the request.
//  4. Before each retry, wait for Retry-After (seconds or a date), if present, plus a
//     random jitter. The jitter's limit doubles with each attempt up to a maximum.
//     Otherwise clients that failed together retry together.
//  5. If the client stops before a final response, the outcome is unknown. Report this
//     as an error of its own ([OutcomeUnknownError]), not as a failed payment. Keep the
//     key, and send the request again later. The outcome is also unknown if an earlier
//     attempt had no final response and a later one is rejected with corrected or
//     never, for example with a 401. The rejection is about the later attempt only. Only a 201,
//     the retry member new-key, or the outcome member final resolves earlier attempts,
//     including those before a crash.
//
// # Limits
//
// The package stores nothing and logs nothing. Without a deadline in the context,
// retries do not end. Unknown members of a response are ignored, so that a compatible
// change of the API breaks no client.
package client
