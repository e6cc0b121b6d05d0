package idempotencytest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

func TestPutKey(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	account := idempotencytest.Account(t, pool)
	tests := []struct {
		name  string
		state idempotencytest.State
		point string
		age   *float64 // of the lease, in seconds
	}{
		{"default", idempotencytest.State{}, "noop", nil},
		{"released", idempotencytest.State{Point: "halfway"}, "halfway", nil},
		{"leased", idempotencytest.State{Point: "halfway", Leased: true}, "halfway", new(float64)},
		{"leased an hour ago", idempotencytest.State{Point: "halfway", Leased: true, LeaseAge: time.Hour}, "halfway", seconds(time.Hour)},
		{"finished", idempotencytest.State{Point: idempotency.Finished}, "finished", nil},
		{"finished with a response", idempotencytest.State{
			Point:    idempotency.Finished,
			Response: idempotency.Response{Status: 402, Body: []byte("no")},
		}, "finished", nil},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
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
			var age *float64
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
			if test.age == nil {
				require.Nil(t, age)
			} else {
				require.InDelta(t, *test.age, *age, 60)
				idempotencytest.AgeLease(t, pool, account, id, 24*time.Hour)
			}
			if test.state.Point != idempotency.Finished {
				idempotencytest.AgeRun(t, pool, account, id, 24*time.Hour)
			}
			if want := test.state.Response.Status; want != 0 {
				require.Equal(t, want, status)
			}
		})
	}
}

func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}
