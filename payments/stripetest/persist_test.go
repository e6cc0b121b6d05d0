package stripetest_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// An earlier server with the same file represents a killed process.
func startPersistent(t *testing.T, file string, opts stripetest.Options) *fake {
	t.Helper()
	s := start(t, opts)
	require.NoError(t, s.Persist(file))
	return s
}

func TestPersist(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "stripe.json")
	a := startPersistent(t, file, stripetest.Options{})
	first, ids, forms := map[string]reply{}, map[string]string{}, map[string]string{}
	post := func(path, key, form string) {
		forms[path+" "+key] = form
		first[key] = a.post(path, key, form)
		require.NoError(t, first[key].err)
		ids[key] = first[key].field("id")
	}
	post(intentsPath, "visa", visa)
	post(intentsPath, "decline", decline)
	post(intentsPath, "asking", newCard+challengeCard)
	post(intentsPath, "unconfirmed", unconfirmed)
	post(refundsPath, "refund", "payment_intent="+ids["visa"]+"&amount=500&metadata[refund_id]=r-1")
	post(refundsPath, "refused", "payment_intent="+ids["visa"]+"&amount=9999")
	_, err := a.Dispute(ids["visa"], 100, "fraudulent", "warning_needs_response")
	require.NoError(t, err)
	declined := first["decline"].field("error.payment_intent.id")
	same := func(a, b *fake) {
		for _, path := range []string{intentsPath + "?limit=100", refundsPath, "/v1/disputes", intentsPath + "/" + declined} {
			require.Equal(t, a.get(path).body, b.get(path).body, path)
		}
		require.Equal(t, a.Charges(), b.Charges())
		require.Equal(t, a.Refunds(), b.Refunds())
	}

	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "it has client secrets")
	killed, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = killed.WriteString(`{"Intent":{"id":"pi_`) // by a process that was killed during the write
	require.NoError(t, errors.Join(err, killed.Close()))
	b := startPersistent(t, file, stripetest.Options{})
	same(a, b)
	for endpoint, form := range forms {
		path, key, _ := strings.Cut(endpoint, " ")
		again := b.post(path, key, form)
		require.Equal(t, first[key].status, again.status, key)
		require.Equal(t, first[key].body, again.body, key)
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"), key)
	}

	require.NoError(t, b.Authenticate(ids["asking"], true))
	require.Equal(t, http.StatusOK, b.post(intentsPath+"/"+ids["unconfirmed"]+"/confirm", "", "off_session=true").status)
	require.NoError(t, b.ConfirmAsCustomer(declined, "pm_card_visa"))
	requireError(t, b.post(refundsPath, "", "payment_intent="+ids["visa"]+"&amount=1501"), http.StatusBadRequest, "", "amount")
	used := b.post(intentsPath, "", newCard+first["visa"].field("payment_method"))
	requireError(t, used, http.StatusBadRequest, "", "")
	c := startPersistent(t, file, stripetest.Options{})
	require.Len(t, c.Charges(), 4)
	same(b, c)
	found, _ := idsOf(t, c.search(ofOrder1))
	require.Len(t, found, 2, "the file has no delays")
}
