package api

import (
	"context"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
)

// However many API keys are tried, so many are remembered, the latest among them.
func TestCredentials_rememberNoMore(t *testing.T) {
	t.Parallel()
	c := newCredentials(nil, nil)
	var hash keyHash
	for i := range maxSeen + 10 {
		binary.BigEndian.PutUint64(hash[:], uint64(i))
		c.remember(hash, uuid.New())
	}
	require.Len(t, c.seen, maxSeen)
	_, known := c.recall(hash)
	require.True(t, known)
}

// What is remembered may be wrong. It opens nothing then, and is not asked again.
func TestCredentials_rememberedWrongly(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	account, key, err := CreateAccount(t.Context(), pool, "test")
	require.NoError(t, err)
	hash, err := presented(map[string][]string{"Authorization": {"Bearer " + key}})
	require.NoError(t, err)

	c := newCredentials(pool, nil)
	c.remember(hash, uuid.New())
	guessed := &caller{hash: hash}
	guessed.account, _ = c.recall(hash)
	require.ErrorIs(t, c.check(t.Context(), guessed), errUnauthorized)
	require.False(t, guessed.checked.Load())
	_, known := c.recall(hash)
	require.False(t, known)

	asked := &caller{hash: hash}
	require.NoError(t, c.check(t.Context(), asked))
	require.Equal(t, account, asked.account)
}

// A handler that loses the question for the API key does not go unnoticed.
func TestCredentials_notAsked(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	account, key, err := CreateAccount(t.Context(), pool, "test")
	require.NoError(t, err)
	c := newCredentials(pool, nil)
	hash, err := presented(http.Header{"Authorization": {"Bearer " + key}})
	require.NoError(t, err)
	c.remember(hash, account)

	answer := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/orders", strings.NewReader("{}"))
	request.Header = http.Header{"Authorization": {"Bearer " + key}, "Idempotency-Key": {"1c8fc54a-0b4f-47f1"}, "Content-Type": {"application/json"}}
	err = c.inPassing(func(w http.ResponseWriter, r *http.Request) error {
		return keysAPI{callers: c}.post(w, r, func(context.Context, orders.CreateRequest) (idempotency.Result, error) {
			return idempotency.Result{Response: idempotency.Response{Status: http.StatusCreated}}, nil
		})
	})(answer, request)
	require.ErrorIs(t, err, errNotAsked)
	require.Empty(t, answer.Body.String())
}
