package demo

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// The timeline shows a charge before the transaction that records it.
func TestPlay_changes(t *testing.T) {
	t.Parallel()
	c, _ := newSite(t)
	p := newPlay(c.system, scenario{card: cards()[0], fault: faults()[0]})
	s := state{row: row{Point: "charge_created", Status: orders.StatusPending, Attempt: 1}}
	s.intents = []payments.Intent{{Status: payments.StatusRequiresConfirmation}}
	require.NotEmpty(t, p.addChanges(s))
	require.Empty(t, p.addChanges(s), "nothing has changed")
	s.row = row{Point: "finished", Status: orders.StatusPaid, Attempt: 2}
	s.intents = []payments.Intent{{Status: payments.StatusSucceeded, Amount: 2500, AmountReceived: 2500}}
	s.mails = 1
	cause := p.addChanges(s)
	var texts []string
	for _, e := range p.view.Events {
		texts = append(texts, e.Text)
	}
	require.Equal(t, []string{"charge_created", "run 2 takes over", "the card is charged", "finished", "the receipt is accepted"}, texts)
	require.Equal(t, p.view.Events[3].ID, cause)
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	replayed := client.Response{Status: 201, Header: http.Header{"Idempotent-Replayed": {"true"}}, Body: []byte(`{}`)}
	for want, response := range map[string]client.Response{
		"no response":                     {},
		"201 created":                     {Status: 201, Body: []byte(`{"id":"x"}`)},
		"201 created, replayed":           replayed,
		"202 requires_action":             {Status: 202, Body: []byte(`{"action":{"client_secret": "pi_1_secret_2"}}`)},
		"409 idempotency-key-in-progress": {Status: 409, Body: []byte(`{"type":"/problems/idempotency-key-in-progress"}`)},
	} {
		require.Equal(t, want, describe(response))
	}
}
