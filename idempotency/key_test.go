package idempotency_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

func TestParseKey_bounds(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{
		"shortest":     strings.Repeat("k", 16),
		"longest":      strings.Repeat("k", 255),
		"UUID":         "2f1cdb0e-8a0f-4b0e-9d3c-6f6a2f3f9f10",
		"all of ASCII": `!"#$%&'()*+,-./0123456789:;<=>?@[\]^_` + "`{|}~",
	} {
		parsed, err := idempotency.ParseKey(key)
		require.NoError(t, err, name)
		require.Equal(t, key, string(parsed))
	}
	for name, key := range map[string]string{
		"empty":     "",
		"too short": strings.Repeat("k", 15),
		"too long":  strings.Repeat("k", 256),
		"space":     "key with a space",
		"newline":   "abcdefghabcdefgh\n",
		"DEL":       "abcdefgh\x7fabcdefgh",
		"not ASCII": "schlüssel-schlüssel",
		"not UTF-8": "abcdefgh\xffabcdefgh",
	} {
		_, err := idempotency.ParseKey(key)
		require.ErrorIs(t, err, idempotency.ErrInvalidKey, name)
	}
}

// Derived ids are stored here and by providers: they never change.
func TestDeriveID_frozen(t *testing.T) {
	t.Parallel()
	account := uuid.MustParse("6f1c7f9e-53bd-4b0a-8c36-0f5f3f1f2c11")
	const key = idempotency.Key("2f1cdb0e-8a0f-4b0e-9d3c-6f6a2f3f9f10")
	require.Equal(t, "7705e15a-4cbc-8a23-b9bf-00fed0bdbaab", idempotency.KeyID(account, key).String())
	require.Equal(t, "cf6148ff-4392-8fed-ab71-9d4a90e2cc0a", idempotency.DeriveID("order", account, key).String())
	order := idempotency.DeriveID("order", account, key)
	require.EqualValues(t, 8, order.Version())
	require.Equal(t, uuid.RFC4122, order.Variant())
	for _, other := range []uuid.UUID{
		idempotency.KeyID(account, key),
		idempotency.DeriveID("order", uuid.New(), key),
		idempotency.DeriveID("order", account, key+"x"),
		idempotency.DeriveID("orde", account, "r"+key),
	} {
		require.NotEqual(t, order, other)
	}
}
