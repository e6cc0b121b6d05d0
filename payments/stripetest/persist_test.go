package stripetest_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// An earlier server with the same file represents a killed process.
func startPersistent(t *testing.T, file string, opts stripetest.Options) *standIn {
	t.Helper()
	s := start(t, opts)
	require.NoError(t, s.Persist(file))
	return s
}

func TestPersist(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "stripe.json")
	const asking = "amount=2000&currency=usd&payment_method=pm_card_threeDSecure2Required&payment_method_types[0]=card&confirm=true"
	const later = "amount=3000&currency=usd&payment_method=pm_card_refundFail&payment_method_types[0]=card&confirm=true&metadata[order_id]=order-2"
	a := startPersistent(t, file, stripetest.Options{})
	requests := []struct{ path, key, form string }{
		{intentsPath, "visa", visa},
		{intentsPath, "decline", decline},
		{intentsPath, "asking", asking},
		{intentsPath, "bank", "amount=2000&currency=usd&payment_method=" + stripetest.ProcessingCard + "&payment_method_types[0]=card&confirm=true"},
		{intentsPath, "later", later},
		{intentsPath, "unconfirmed", unconfirmed},
	}
	ids := map[string]string{}
	first := map[string]reply{}
	post := func(path, key, form string) {
		r := a.post(path, key, form)
		require.NoError(t, r.err)
		first[key], ids[key] = r, r.field("id")
	}
	for _, r := range requests {
		post(r.path, r.key, r.form)
	}
	requests = append(requests,
		struct{ path, key, form string }{"/v1/refunds", "refund", "payment_intent=" + ids["visa"] + "&amount=500&metadata[refund_id]=r-1"},
		struct{ path, key, form string }{"/v1/refunds", "failing", "payment_intent=" + ids["later"]},
		struct{ path, key, form string }{"/v1/refunds", "refused", "payment_intent=" + ids["visa"] + "&amount=9999"})
	for _, r := range requests[6:] {
		post(r.path, r.key, r.form)
	}
	declined := first["decline"].field("error.payment_intent.id")
	lists := []string{
		intentsPath + "?limit=100", "/v1/refunds?limit=100", intentsPath + "/" + declined, intentsPath + "/" + ids["visa"],
	}

	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "it has client secrets")
	killed, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = killed.WriteString(`{"Intents":[{"id":"pi_`) // by a process that was killed during the write
	require.NoError(t, errors.Join(err, killed.Close(), os.WriteFile(file+".new", []byte("{"), 0o600)))
	b := startPersistent(t, file, stripetest.Options{})
	for _, r := range requests {
		again := b.post(r.path, r.key, r.form)
		require.Equal(t, first[r.key].status, again.status, r.key)
		require.Equal(t, first[r.key].body, again.body, r.key)
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"), r.key)
		for _, name := range []string{"Original-Request", "Stripe-Should-Retry"} {
			require.Equal(t, first[r.key].header.Get(name), again.header.Get(name), r.key)
		}
	}
	require.Equal(t, http.StatusBadRequest, b.post(intentsPath, "visa", decline).status, "another request under the key")
	for _, path := range lists {
		require.Equal(t, a.get(path).body, b.get(path).body, path)
	}
	require.Equal(t, a.Charges(), b.Charges())
	require.Equal(t, a.Refunds(), b.Refunds())

	late := b.Inject(stripetest.Rule{Fault: stripetest.ErrorLater, Key: "late"})
	require.Equal(t, http.StatusInternalServerError, b.post(intentsPath, "late", visa).status)
	late.Release()
	require.NoError(t, b.Authenticate(ids["asking"], true))
	require.NoError(t, b.Settle(ids["bank"], true))
	require.NoError(t, b.Settle(ids["failing"], false))
	require.Equal(t, http.StatusOK, b.post(intentsPath+"/"+ids["unconfirmed"]+"/confirm", "", "off_session=true").status)
	require.NoError(t, b.ConfirmAsCustomer(declined, "pm_card_visa"))
	requireError(t, b.post("/v1/refunds", "", "payment_intent="+ids["visa"]+"&amount=1501"), http.StatusBadRequest, "", "amount")
	requireError(t, b.post(intentsPath, "", "amount=2000&currency=usd&payment_method="+first["visa"].field("payment_method")+
		"&payment_method_types[0]=card&confirm=true"), http.StatusBadRequest, "", "")
	c := startPersistent(t, file, stripetest.Options{})
	require.Len(t, c.Charges(), 7)
	require.Equal(t, b.Charges(), c.Charges())
	require.Equal(t, b.Refunds(), c.Refunds())
	require.Equal(t, http.StatusInternalServerError, c.post(intentsPath, "late", visa).status)
	for _, path := range lists {
		require.Equal(t, b.get(path).body, c.get(path).body, path)
	}
}

// The file contains a response that the client did not get, but no unfinished request.
func TestPersist_kill(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "stripe.json")
	a := startPersistent(t, file, stripetest.Options{})
	lost := a.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Key: "lost"})
	held := a.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Key: "held"})
	replies := []<-chan reply{a.background(intentsPath, "lost", visa), a.background(intentsPath, "held", visa)}
	reached(t, lost)
	reached(t, held)

	b := startPersistent(t, file, stripetest.Options{})
	require.Len(t, b.Charges(), 1)
	require.Equal(t, "true", b.post(intentsPath, "lost", visa).header.Get("Idempotent-Replayed"))
	require.Len(t, b.Charges(), 1)
	require.Empty(t, b.post(intentsPath, "held", visa).header.Get("Idempotent-Replayed"))
	require.Len(t, b.Charges(), 2)
	a.Close()
	for _, r := range replies {
		require.Error(t, (<-r).err)
	}
}

func TestPersist_keyTTL(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "stripe.json")
	now := time.Now()
	at := func(d time.Duration) stripetest.Options {
		return stripetest.Options{Clock: func() time.Time { return now.Add(d) }}
	}
	id := startPersistent(t, file, at(0)).post(intentsPath, "k", visa).field("id")
	require.Equal(t, id, startPersistent(t, file, at(24*time.Hour-time.Second)).post(intentsPath, "k", visa).field("id"))
	require.NotEqual(t, id, startPersistent(t, file, at(24*time.Hour)).post(intentsPath, "k", visa).field("id"))
	startPersistent(t, file, at(24*time.Hour)) // it loads, and stores what is left
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(content), `"FirstUsed"`))
}

func TestPersist_fails(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.Mkdir(folder, 0o700))
	file := filepath.Join(folder, "stripe.json")
	a := startPersistent(t, file, stripetest.Options{})
	id := a.create(unconfirmed)
	require.NoError(t, os.Rename(folder, folder+".gone"))
	require.Error(t, a.post(intentsPath+"/"+id+"/confirm", "k", "").err)
	require.Error(t, a.post(intentsPath+"/"+id+"/confirm", "k", "").err)
	require.Error(t, a.get(intentsPath+"/"+id).err)
	require.NoError(t, os.Rename(folder+".gone", folder))
	require.Equal(t, "true", a.post(intentsPath+"/"+id+"/confirm", "k", "").header.Get("Idempotent-Replayed"))
	require.Equal(t, a.Charges(), startPersistent(t, file, stripetest.Options{}).Charges())

	require.NoError(t, os.WriteFile(file, []byte("{\n"), 0o600))
	require.ErrorContains(t, start(t, stripetest.Options{}).Persist(file), file)
}
