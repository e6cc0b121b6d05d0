package history

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// at returns an operation from call to end, in milliseconds.
func at(call, end int, op Operation) Operation {
	op.Key, op.Call, op.Return = "key", time.Duration(call)*time.Millisecond, time.Duration(end)*time.Millisecond
	return op
}

func post(call, end, status int, problem string) Operation {
	op := Operation{Kind: Post, Request: "tea", Status: status, Response: Response{Status: status, Body: "body"}}
	if problem != "" {
		op.Response.Type = "/problems/" + problem
	}
	return at(call, end, op)
}

func created(call, end int, body string) Operation {
	op := post(call, end, http.StatusCreated, "")
	op.Response.Location, op.Response.Body = "/v1/orders/1", body
	return op
}

func unanswered(call int) Operation { return post(call, 0, 0, "") }

func otherBody(op Operation) Operation {
	op.Request = "coffee"
	return op
}

func read(call, end int, state string) Operation {
	op := Operation{Kind: Read, Status: http.StatusOK, State: state}
	switch state {
	case "finished":
		op.Response = Response{Status: http.StatusCreated, Location: "/v1/orders/1"}
	case "":
		op.Status, op.Response = http.StatusNotFound, Response{}
	}
	return at(call, end, op)
}

// recorded is the rejection of a refund that the provider's list has recorded.
func recorded(call, end int) Operation {
	op := post(call, end, 422, "idempotency-key-expired")
	op.Refund = true
	return op
}

func ofAccount(account int, op Operation) Operation {
	op.Account = account
	return op
}

func TestJudge(t *testing.T) {
	t.Parallel()
	tests := map[string][]Operation{
		"created, replayed and read": {created(0, 2, "a"), created(3, 4, "a"), read(5, 6, "finished")},
		"a retry after no response":  {unanswered(0), created(3, 4, "a")},
		"the first request arrives after a read and before the retry": {
			unanswered(0), read(1, 2, ""), read(3, 4, "in_progress"), created(5, 6, "a"),
		},
		"requests without a response or with 503, and the completer": {
			unanswered(0), post(1, 2, 503, "temporarily-unavailable"), read(3, 4, "waiting"), read(5, 6, "finished"),
			post(7, 8, 503, "temporarily-unavailable"), created(9, 10, "a"),
		},
		"concurrent requests": {
			created(0, 10, "a"), post(1, 9, 409, "idempotency-key-in-progress"), created(2, 5, "a"),
		},
		"the request claims the key, and another program takes its run over": {
			post(0, 10, 409, "idempotency-key-in-progress"), read(1, 9, "in_progress"), created(11, 12, "a"),
		},
		"reads that are concurrent with the request": {
			created(0, 10, "a"), read(1, 3, ""), read(2, 8, "finished"), read(3, 5, "in_progress"), read(4, 12, "in_progress"),
		},
		"a challenge": {
			post(0, 1, 202, ""), read(2, 3, "requires_action"), post(4, 5, 202, ""), read(6, 7, "finished"), created(8, 9, "a"),
		},
		"declined": {post(0, 1, 402, "payment-declined"), post(2, 3, 402, "payment-declined")},
		"another body": {
			created(0, 2, "a"), otherBody(post(1, 4, 422, "idempotency-key-reused")), created(5, 6, "a"),
		},
		"a rejection does not use the key": {
			otherBody(post(0, 1, 422, "validation-failed")), read(2, 3, ""), created(4, 5, "a"),
		},
		"cancelled": {post(0, 1, 503, "payment-outcome-unknown"), post(2, 3, 200, ""), post(4, 5, 200, "")},
		"a paid order is not cancelled, which does not use the key": {
			post(0, 1, 422, "order-not-cancelable"), read(2, 3, ""), post(4, 5, 422, "order-not-cancelable"),
		},
		"the order is paid during its cancel": {
			post(0, 5, 422, "order-not-cancelable"), read(1, 2, "in_progress"), post(6, 7, 422, "order-not-cancelable"),
		},
		"shed": {created(0, 1, "a"), post(2, 3, 429, "rate-limited")},
		"reaped": {
			created(0, 1, "a"), at(2, 3, Operation{Kind: Age}), created(4, 5, "a"),
			post(6, 7, 422, "idempotency-key-expired"), read(8, 9, "expired"),
		},
		"the same key in two accounts": {created(0, 1, "a"), ofAccount(1, read(2, 3, "")), ofAccount(1, created(4, 5, "b"))},
	}
	for name, history := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := judge(history)
			require.Empty(t, v.Rejected)
			require.Empty(t, v.Lost)
		})
	}
}

func TestJudge_rejected(t *testing.T) {
	t.Parallel()
	first := created(0, 1, "a")
	otherLocation := read(2, 3, "finished")
	otherLocation.Response.Location = "/v1/orders/2"
	tests := map[string][]Operation{
		"another response":                                   {first, created(2, 3, "b")},
		"another response of a concurrent request":           {created(0, 4, "a"), created(1, 3, "b")},
		"another response after one of unknown outcome":      {unanswered(0), created(1, 2, "a"), created(3, 4, "b")},
		"a decline after a success":                          {first, post(2, 3, 402, "payment-declined")},
		"not cancelable after a cancel":                      {post(0, 1, 200, ""), post(2, 3, 422, "order-not-cancelable")},
		"in progress after the final response":               {first, post(2, 3, 409, "idempotency-key-in-progress")},
		"accepted after the final response":                  {first, post(2, 3, 202, "")},
		"an unfinished read after the final response":        {first, read(2, 3, "in_progress")},
		"an unfinished read after a finished one":            {unanswered(0), read(1, 2, "finished"), read(3, 4, "waiting")},
		"no key after the final response":                    {first, read(2, 3, "")},
		"no key after 202":                                   {post(0, 1, 202, ""), read(2, 3, "")},
		"a read of another response":                         {first, otherLocation},
		"a read of another response before the final one":    {unanswered(0), at(1, 2, otherLocation), created(3, 4, "a")},
		"a finished read of a key that was never sent":       {read(0, 1, "finished"), created(2, 3, "a")},
		"a replay to another body":                           {first, otherBody(created(2, 3, "a"))},
		"another body is invalid instead of a known key's":   {first, otherBody(post(2, 3, 422, "validation-failed"))},
		"the same body is another one":                       {first, post(2, 3, 422, "idempotency-key-reused")},
		"a rejection of a used key":                          {post(0, 1, 202, ""), post(2, 3, 422, "refund-exceeds-remaining")},
		"expired, but not old":                               {first, post(2, 3, 422, "idempotency-key-expired")},
		"an unfinished key expires":                          {post(0, 1, 202, ""), at(2, 3, Operation{Kind: Age}), read(4, 5, "expired")},
		"executed again after it expired":                    {first, at(2, 3, Operation{Kind: Age}), read(4, 5, "expired"), created(6, 7, "a")},
		"lost without a failover":                            {first, read(2, 3, ""), created(4, 5, "b")},
		"a loss that only an operator's act would explain":   {first, at(2, 3, Operation{Kind: Expire}), read(4, 5, "expired")},
		"two keys in one account, of which the second fails": {ofAccount(1, first), first, created(2, 3, "b")},
	}
	for name, history := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := judge(history)
			require.Len(t, v.Rejected, 1)
			require.Equal(t, "account 0, key key", v.Rejected[0].String())
			require.Empty(t, v.Lost)
		})
	}
}

// The failover may lose what was committed between 10 and 20.
func TestJudge_failover(t *testing.T) {
	t.Parallel()
	const rejected, lost, neither = "rejected", "lost", ""
	tests := map[string]struct {
		history []Operation
		want    string
	}{
		"not lost":                              {[]Operation{created(12, 13, "a"), created(22, 23, "a")}, neither},
		"lost, and restored by a retry":         {[]Operation{created(12, 13, "a"), read(22, 23, ""), created(24, 25, "b")}, lost},
		"only the response is lost":             {[]Operation{post(1, 2, 202, ""), created(12, 13, "a"), read(22, 23, "waiting"), created(24, 25, "b")}, lost},
		"the request was concurrent":            {[]Operation{created(8, 12, "a"), created(18, 24, "b")}, lost},
		"the claim was acknowledged before":     {[]Operation{post(1, 2, 202, ""), created(12, 13, "a"), read(22, 23, "")}, rejected},
		"the response was acknowledged before":  {[]Operation{created(1, 2, "a"), created(22, 23, "b")}, rejected},
		"the response was acknowledged after":   {[]Operation{created(21, 22, "a"), created(23, 24, "b")}, rejected},
		"lost twice":                            {[]Operation{created(12, 13, "a"), created(22, 23, "b"), created(24, 25, "c")}, rejected},
		"an operator expires the lost key":      {[]Operation{created(12, 13, "a"), at(21, 22, Operation{Kind: Expire}), read(23, 24, "expired")}, lost},
		"expired, although no operator acted":   {[]Operation{created(12, 13, "a"), read(23, 24, "expired")}, rejected},
		"executed after an operator expired it": {[]Operation{created(12, 13, "a"), at(21, 22, Operation{Kind: Expire}), created(23, 24, "b")}, rejected},
		"the list records the lost refund": {
			[]Operation{created(12, 13, "a"), read(22, 23, ""), recorded(24, 25), read(26, 27, ""), recorded(28, 29)}, lost,
		},
		"the list records the refund of a request without a response": {[]Operation{unanswered(12), recorded(24, 25), read(26, 27, "")}, lost},
		"made again after the list recorded it":                       {[]Operation{created(12, 13, "a"), recorded(24, 25), created(26, 27, "b")}, rejected},
		"a lost order that expired":                                   {[]Operation{created(12, 13, "a"), post(24, 25, 422, "idempotency-key-expired")}, rejected},
		"expired, although the refund was durable":                    {[]Operation{created(1, 2, "a"), recorded(24, 25)}, rejected},
		"the reaper's deletion is lost": {
			[]Operation{created(1, 2, "a"), at(3, 4, Operation{Kind: Age}), read(12, 13, "expired"), created(22, 23, "a"), read(24, 25, "expired")}, lost,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := judge(append(test.history, at(10, 20, Operation{Kind: Failover})))
			require.Equal(t, test.want == rejected, len(v.Rejected) == 1, v)
			require.Equal(t, test.want == lost, len(v.Lost) == 1, v)
		})
	}
}

// Requests without an answer, which a client repeats for a minute after a failover, are decided at once.
func TestJudge_unansweredAfterFailover(t *testing.T) {
	t.Parallel()
	for want, last := range map[string]Operation{
		"lost":     recorded(9000, 9001),
		"rejected": created(9000, 9001, "b"),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			history := []Operation{created(12, 13, "a")}
			for i := range 70 {
				notRefundable := post(100*i+30, 100*i+40, 422, "order-not-refundable")
				history = append(history, unanswered(100*i+25), notRefundable)
			}
			history = append(history, recorded(8000, 8001), last)
			v := judge(append(history, at(10, 20, Operation{Kind: Failover})))
			require.Len(t, map[string][]Key{"lost": v.Lost, "rejected": v.Rejected}[want], 1, v)
			require.Zero(t, v.Undecided)
		})
	}
}
