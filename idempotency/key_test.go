package idempotency_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/idempotency"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{
		"shortest":      strings.Repeat("k", 16),
		"longest":       strings.Repeat("k", 255),
		"UUID":          "2f1cdb0e-8a0f-4b0e-9d3c-6f6a2f3f9f10",
		"all of ASCII":  `!"#$%&'()*+,-./0123456789:;<=>?@[\]^_` + "`{|}~",
		"first, last":   "!!!!!!!!~~~~~~~~",
		"case is a bit": "ABCDEFGHabcdefgh",
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
		"leading":   " abcdefghijklmnop",
		"tab":       "abcdefgh\tabcdefgh",
		"newline":   "abcdefghabcdefgh\n",
		"NUL":       "abcdefgh\x00abcdefgh",
		"DEL":       "abcdefgh\x7fabcdefgh",
		"not ASCII": "schlüssel-schlüssel",
		"not UTF-8": "abcdefgh\xffabcdefgh",
	} {
		_, err := idempotency.ParseKey(key)
		require.ErrorIs(t, err, idempotency.ErrInvalidKey, name)
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("2f1cdb0e-8a0f-4b0e-9d3c-6f6a2f3f9f10")
	f.Add(strings.Repeat("k", 256))
	f.Add("abcdefgh\x00abcdefgh")
	f.Fuzz(func(t *testing.T, s string) {
		key, err := idempotency.ParseKey(s)
		visible := !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c >= 0x7f })
		if visible && len(s) >= 16 && len(s) <= 255 {
			require.NoError(t, err)
			require.Equal(t, s, string(key))
		} else {
			require.ErrorIs(t, err, idempotency.ErrInvalidKey)
		}
	})
}

// Derived ids are stored here and by providers: they never change (R5).
func TestDeriveID_frozen(t *testing.T) {
	t.Parallel()
	account := uuid.MustParse("6f1c7f9e-53bd-4b0a-8c36-0f5f3f1f2c11")
	const key = idempotency.Key("2f1cdb0e-8a0f-4b0e-9d3c-6f6a2f3f9f10")
	require.Equal(t, "7705e15a-4cbc-8a23-b9bf-00fed0bdbaab", idempotency.KeyID(account, key).String())
	require.Equal(t, "cf6148ff-4392-8fed-ab71-9d4a90e2cc0a", idempotency.DeriveID("order", account, key).String())
	require.Equal(t, idempotency.KeyID(account, key), idempotency.DeriveID("idempotency_key", account, key))
}

func TestDeriveID(t *testing.T) {
	t.Parallel()
	words := rapid.StringMatching(`[a-z_]{1,20}`)
	keys := rapid.StringMatching(`[!-~]{16,40}`)
	accounts := rapid.Custom(func(t *rapid.T) uuid.UUID {
		return uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "account"))
	})
	rapid.Check(t, func(t *rapid.T) {
		type input struct {
			word    string
			account uuid.UUID
			key     idempotency.Key
		}
		draw := func(label string) input {
			return input{words.Draw(t, label), accounts.Draw(t, label), idempotency.Key(keys.Draw(t, label))}
		}
		one, two := draw("one"), draw("two")
		id := idempotency.DeriveID(one.word, one.account, one.key)
		require.EqualValues(t, 8, id.Version())
		require.Equal(t, uuid.RFC4122, id.Variant())
		require.Equal(t, one == two, id == idempotency.DeriveID(two.word, two.account, two.key))
		require.NotEqual(t, id, idempotency.DeriveID(one.word+"x", one.account, one.key))
		require.NotEqual(t, id, idempotency.DeriveID(one.word, one.account, one.key+"x"))
	})
}
