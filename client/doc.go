// Package client sends requests to the orders API so that each takes effect
// exactly once, and shows how: it is the reference for authors of clients in any
// language.
//
//	key := client.NewKey()
//	// … store the key beside the purchase, and only then:
//	order, err := orders.CreateOrder(ctx, key, params)
//
// # One intent, one key
//
// A key names an intent: this customer's purchase, this refund. It is minted
// once, and stored beside the intent before the first send. A program that dies
// between the send and the answer finds both when it comes back, sends the same
// request under the same key, and gets the answer it missed. A key that was only
// in memory is lost with the answer, and the next one buys a second time.
//
// Nothing here mints a key but [NewKey], and no function that sends calls it:
// the key is an argument, and the retries are inside of the call. Whoever finds
// himself calling NewKey in a loop around [Client.CreateOrder] is about to charge
// twice.
//
// # The rules
//
// These are all that a client needs. [Client.Do] follows them.
//
//  1. A POST has an Idempotency-Key. Its retries have the same key and the same
//     bytes. It does not follow redirects: the next server may not know the key.
//  2. The answer ends the call when it is whole, and either is 201 with a JSON
//     object or a problem (application/problem+json) whose retry member is
//     corrected, new-key or never. Corrected means that this send did not use the
//     key: the caller fixes the request and sends it with the same key. New-key
//     means that the key has its final response: another attempt is another
//     payment, with a key of its own. Only the caller knows whether it is wanted,
//     so it is never made here.
//     A 202 whose action member is an object ends the call, too: the customer must
//     approve the payment. Afterwards, send the same request with the same key.
//  3. All else says "the same again": the retry member same-key; no answer, or
//     one that is cut; a page of some proxy's, whatever its status; an answer
//     without a retry member that one knows. Neither status nor type decides: a
//     503 may come from the API or from something before it that never asked it.
//  4. Before sending again, wait: Retry-After (seconds or a date) where there is
//     one, never less, and on top of it a random time from 0 to a limit that
//     doubles with each send up to a bound. Else those who failed together come
//     back together.
//  5. Who stops early does not know the outcome. That is an error of its own,
//     [OutcomeUnknownError], and not a failed payment: keep the key, and go on
//     with it later. The same holds when an earlier send had no final answer and
//     a later one is rejected with corrected or never, such as 401: the rejection
//     is about that send alone, unless the outcome member is final. What an
//     earlier call left in doubt, perhaps before a crash, is settled by a 201, by
//     new-key or by the outcome final, and by nothing less.
//
// # What it does not know
//
// It keeps nothing, reads no environment and logs nothing. It does not know when
// to give up: that is the context's deadline, and without one it goes on for
// ever. Answers are checked no further than their JSON, and members it does not
// know are ignored, so that it outlives changes of the API that break nobody.
package client
