// Package recorded judges the client of package payments, the fake and the webhook by recordings of
// Stripe's real traffic. The recordings are not in this repository, because they are others' data:
//
//	make -C lab recorded RECORDINGS=folder
//
// reads each *.jsonl file of the folder, and by default of ../shared/stripe-recorded beside the checkout.
// The tests of this package use invented exchanges (testdata/examples.jsonl), and plant a wrong answer of
// each kind in them, which must be found.
//
// # The format
//
// A line is a JSON object, an exchange or an event. An exchange has a method, an event has none.
//
//	kind                  what the line shows, in a few words
//	source_repo           the public repository of the recording, or where you recorded it
//	source_path           the file in it; source_version and source_index may say more
//	recorded              how: vcr, har, quoted, or what its authors changed
//	api_version           of the response, or null
//	method, path, params  the request; params are decoded, with names such as metadata[order_id]
//	idempotency_key_sent  whether it had an Idempotency-Key
//	status                of the response
//	headers               of the response; {} if they are not known, and then they are not compared
//	body                  of the response, or the event
//
// A response that several lines have counts once.
//
// To add your own, write such lines from the traffic of a test key. Replace secrets, and the personal data
// of your customers, but keep the types of members and the ids, because these are compared.
//
// # What is compared
//
//   - The client gets the recorded response from a server, and must return what the table in
//     outcomes_test.go states, and every member that it reads. A dispute is compared as a list with only this
//     dispute, because the client never reads a single one.
//   - The fake gets an equivalent request, in an equivalent state. Its response must have the same status,
//     type, code, decline code, parameter and headers, and the same state of the intent, also of the one
//     in an error.
//   - The API gets an order whose confirm has the recorded decline. Its response and the order must have
//     the same codes.
//   - The webhook gets the recorded event, with a signature, as it is and about an order of ours. So does
//     the reader of the provider's list of events.
package recorded
