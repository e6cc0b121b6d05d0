// Package history records what the clients of the soak saw, and judges it with Porcupine, a
// checker of linearizability.
//
// A history is a file of JSON lines. Most lines are a request to a key or a read of its
// status: when it was sent and answered by one monotonic clock, and fingerprints of the
// request and of its final response. The other lines are acts of the soak, such as a failover.
//
// Each key is a register whose state only moves forward:
//
//	unused → claimed → final → expired
//
// A request may claim a key, and the server may finish a claimed one at any time, because
// the completer and webhooks do so too. A response or a read is legal in these states:
//
//	201, 402, a stored 422    unused or claimed, which becomes final, or final with the same bytes
//	202                       unused, which becomes claimed, or claimed
//	409                       unused or claimed
//	another rejection         unused
//	key reused                claimed or final, by another request
//	key expired               final, if the soak has aged the key, which becomes expired; or expired
//	429                       all; it is left out
//	503, 500, no response     all; the request may claim the key then, later or never
//	read: 404                 unused
//	read: unfinished          claimed
//	read: finished            claimed, which becomes final, or final with the same status, type and Location
//	read: expired             as key expired
//
// A history is linearizable if each answer can be assigned a moment between its request
// and its arrival so that all answers are legal in the order of the moments. So an answer that was
// true once but is stale when its request begins is a violation, too.
//
// A failover may lose the rows of a second, and an operator then expires keys. A key that
// only these acts explain is counted and named ([Verdict].Lost): the failover may take it back
// to a state that it had in the time whose rows may be lost, but not to an earlier one.
package history
