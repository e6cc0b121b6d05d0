package orders_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// FuzzDecodeParams searches for requests that panic, or that are accepted with an invalid
// amount or differ after encoding.
func FuzzDecodeParams(f *testing.F) {
	f.Add([]byte(`{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa","items":` + itemsJSON + `,"metadata":{"basket":"b-77"}}`))
	f.Fuzz(func(t *testing.T, request []byte) {
		_, _ = orders.DecodeParams(request)
		canonical, err := idempotency.Canonicalize(request)
		if err != nil {
			return
		}
		params, err := orders.DecodeParams(canonical)
		var invalid *orders.ValidationError
		if errors.As(err, &invalid) {
			require.NotEmpty(t, invalid.Fields)
			return
		}
		require.NoError(t, err)
		require.GreaterOrEqual(t, params.Amount, int64(1))
		require.LessOrEqual(t, params.Amount, int64(99_999_999))

		written, err := json.Marshal(map[string]any{
			"email": params.Email, "currency": params.Currency, "payment_method": params.PaymentMethod,
			"items": params.Items, "metadata": params.Metadata, "off_session": params.OffSession,
		})
		require.NoError(t, err)
		again, err := idempotency.Canonicalize(written)
		require.NoError(t, err)
		same, err := orders.DecodeParams(again)
		require.NoError(t, err)
		require.Equal(t, params, same)
	})
}
