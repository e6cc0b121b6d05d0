// Package client calls the orders API so that each request takes effect exactly once.
// It is also the reference for authors of clients in any language.
//
//	key := client.NewKey()
//	// Store the key with the purchase before the first send.
//	order, err := orders.CreateOrder(ctx, key, params)
//
// # One purchase, one key
//
// Create a key once for each purchase or refund, never in a retry loop, and store it with
// the request before the first send. After a crash, send the stored request with the stored
// key: the API returns the response that was missed. With a new key, it would charge again.
//
// # The rules
//
// [Client.Do] implements the five rules that each client needs.
//
//  1. All attempts of a POST have the same Idempotency-Key and the same bytes. Redirects
//     are not followed, because another server may not know the key.
//  2. A complete response is final in three cases: 201 (for a cancel 200) with a JSON
//     object; 202 with an action object, which means that the customer must approve the
//     payment before the same request is sent again; and a problem document
//     (application/problem+json) whose retry member is corrected, new-key or never. With
//     corrected, this attempt did not use the key: if another request with the key was answered
//     with 202, same-key or nothing, send that one again, unchanged; otherwise fix the request
//     and keep the key. With new-key, another attempt is another payment, which only the caller
//     can decide. With never, do not send the request again; if the problem names an order, read
//     it, because it may be paid, and a later change of it decides what comes next. If the
//     request prefers [RespondAsync], any 202 of the API ends the call, and the same request
//     returns the outcome later.
//  3. After anything else, send the same request again: after the retry member same-key, a
//     missing or incomplete response, and a response without a known retry member. The
//     status alone decides nothing, because a 503 may come from a proxy.
//  4. Before each retry, wait for Retry-After (seconds or a date), if present, plus a
//     random jitter, because clients that failed together otherwise retry together. The
//     jitter's limit doubles with each attempt up to a maximum.
//  5. If the client stops before a final response, the outcome is unknown. Report this as
//     an error of its own ([OutcomeUnknownError]), not as a failed payment, and send the
//     request again later. The same holds if an earlier attempt had no final response and
//     a later one is rejected with corrected or never, for example with a 401, because the
//     rejection is about the later attempt only. Only a success, the retry member new-key,
//     or the outcome member final resolves earlier attempts, including those before a crash.
//
// [VerifyEvent] verifies the events that the API sends to the shop.
//
// The package stores and logs nothing. If the context has no deadline, retries do not end. Send
// a stored request again until its response is final, but at most 23 hours after its first
// attempt. For a later attempt, see the limits in the contract.
//
// # In another module
//
// This folder imports only github.com/google/uuid, so another module can copy it. To import it
// instead, make the template your own (docs/own.md), push it, and run
//
//	go get github.com/you/shop/client
//
// Without a remote repository, name the folder of the clone, with the path in its go.mod:
//
//	go mod edit -replace=github.com/you/shop=../shop -require=github.com/you/shop@v0.0.0
//	go mod tidy
package client
