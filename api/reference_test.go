package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCreate_reference(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	basket := withMember("reference", "basket #17")
	order := f.createPaid(t, basket)
	require.Equal(t, "basket #17", *f.get(t, order).order(t).Reference)

	// The customer's second tab has a key of its own.
	exists := f.create(t, newKey(), orderBody(basket)).problem(t)
	require.Equal(t, http.StatusUnprocessableEntity, exists.Status)
	require.Equal(t, "order-exists", exists.slug())
	require.EqualValues(t, "never", exists.Retry)
	require.EqualValues(t, "none", exists.Outcome)
	require.Equal(t, order, "/v1/orders/"+exists.OrderID)

	f.createPaid(t)
	found := f.get(t, "/v1/orders?reference=basket%20%2317")
	require.JSONEq(t, `{"data":[`+string(f.get(t, order).body)+`],"has_more":false}`, string(found.body))

	invalid := f.create(t, newKey(), orderBody(withMember("reference", "Körbchen"))).problem(t)
	require.Equal(t, "validation-failed", invalid.slug())
	require.Equal(t, "/reference", invalid.Errors[0].Pointer)
	unreadable := f.get(t, "/v1/orders?reference=").problem(t)
	require.Equal(t, "/reference", unreadable.Errors[0].Pointer)
}
