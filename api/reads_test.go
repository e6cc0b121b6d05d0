package api_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// A read ignores the key, whatever its form: it stores nothing and is never a replay.
func TestReads_keyIgnored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	used := newKey()
	path := "/v1/orders/" + f.create(t, used, orderBody()).order(t).ID.String()
	for _, key := range []string{used, newKey(), "short"} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			got := f.send(t, method, path, "", header("Idempotency-Key", key))
			require.Equal(t, http.StatusOK, got.status, "%s %s", method, key)
			require.Empty(t, got.header.Get("Idempotent-Replayed"))
		}
	}
	f.requireOnePaidOrder(t)
}

func TestReads_otherAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	theirs := f.create(t, key, orderBody()).order(t).ID.String()
	me, requestID := header("Authorization", "Bearer "+f.otherAccount(t)), header("X-Request-Id", "same-for-all")
	require.Equal(t, "not-found", f.getKey(t, key, me).problem(t).slug())
	created := f.create(t, key, orderBody(), me)
	require.Empty(t, created.header.Get("Idempotent-Replayed"))
	mine := created.order(t).ID.String()
	require.NotEqual(t, theirs, mine)
	require.Equal(t, mine, f.getKey(t, key, me).keyStatus(t).Order.ID)
	require.Equal(t, http.StatusOK, f.get(t, "/v1/orders/"+mine, me).status)

	for _, path := range []string{"/v1/orders/", "/v1/orders?after="} {
		foreign := f.get(t, path+theirs, me, requestID)
		unknown := f.get(t, path+uuid.NewString(), me, requestID)
		require.Equal(t, string(unknown.body), string(foreign.body))
		require.Equal(t, unknown.status, foreign.status)
		foreign.header.Del("Date")
		unknown.header.Del("Date")
		require.Equal(t, unknown.header, foreign.header)
	}
}
