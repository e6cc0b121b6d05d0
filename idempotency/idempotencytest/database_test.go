package idempotencytest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

func TestPutKey_states(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	account := idempotencytest.Account(t, pool)
	for i, test := range []struct {
		state  idempotencytest.State
		point  string
		leased bool
	}{
		{idempotencytest.State{}, "noop", false},
		{idempotencytest.State{Point: "halfway"}, "halfway", false},
		{idempotencytest.State{Point: "halfway", Leased: true}, "halfway", true},
		{idempotencytest.State{Point: "halfway", Leased: true, LeaseAge: time.Hour}, "halfway", true},
		{idempotencytest.State{Point: idempotency.Finished}, "finished", false},
		{idempotencytest.State{Point: idempotency.Finished, Response: idempotency.Response{Status: 402, Body: []byte("no")}}, "finished", false},
	} {
		req := idempotency.Request{
			AccountID: account,
			Key:       idempotency.Key("0123456789abcde" + string(rune('a'+i))),
			Method:    "POST",
			Path:      "/v1/things",
			Params:    []byte(`{}`),
		}
		id := idempotencytest.PutKey(t, pool, req, "things", test.state)
		require.Equal(t, idempotency.KeyID(account, req.Key), id)
		var operation, point string
		var age *float64 // of the lease, in seconds
		var status int
		require.NoError(t, pool.QueryRow(t.Context(), `
SELECT operation,
       recovery_point,
       extract(epoch FROM clock_timestamp() - locked_at)::float8,
       coalesce(response_code, 0)
  FROM idempotency_keys
 WHERE account_id = $1
   AND id = $2`, account, id).Scan(&operation, &point, &age, &status))
		require.Equal(t, "things", operation)
		require.Equal(t, test.point, point)
		require.Equal(t, test.leased, age != nil)
		if test.leased {
			require.InDelta(t, test.state.LeaseAge.Seconds(), *age, 60)
			idempotencytest.AgeLease(t, pool, account, id, 24*time.Hour)
		}
		if point != "finished" {
			idempotencytest.AgeRun(t, pool, account, id, 24*time.Hour)
		}
		if want := test.state.Response.Status; want != 0 {
			require.Equal(t, want, status)
		}
	}
}
