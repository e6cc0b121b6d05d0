// Package history records what the clients of the soak saw, and judges it with Porcupine, a
// checker of linearizability.
//
// A history is a file of JSON lines. Most lines are a request with a key or a read of its
// status: when it was sent and answered by one monotonic clock, and fingerprints of the
// request and of its response. The other lines are acts of the soak, such as a failover.
//
// Each key is a register whose state only moves forward:
//
//	unused → claimed → final → expired
//
// A request that was not rejected may claim the key at a moment before its response. If it
// has no response, or a 500 or 503, it may also do so later, or never. The server may finish a
// claimed key at any time, because the completer and webhooks do so, too. A response is legal
// in these states:
//
//	201, 402, a stored 422    claimed by this request, which becomes final, or final with the same bytes
//	202                       claimed by this request
//	409                       unused or claimed
//	another rejection         unused
//	key reused                claimed or final, by another request
//	key expired               expired, or final if the soak has aged the key, which becomes expired
//	429, 500, 503             all
//	read: 404                 unused
//	read: finished            claimed, which becomes final, or final with the same status, type and Location
//	read: expired             as key expired
//	read: another state       claimed
//
// A history is linearizable if each response can be assigned a moment between its request
// and its arrival so that all are legal in the order of the moments. So a response that was
// true once, but not any more when its request began, is a violation.
//
// A failover may lose the rows of a second, and an operator then expires keys. A key that
// only these acts explain is counted and named ([Verdict].Lost): the failover may take it back
// to a state that it had in the time whose rows may be lost, but not to an earlier one.
package history
