package demo

import (
	"context"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/demo/faultproxy"
	"example.com/orders-api/receipts"
)

// A shell passes to curl exactly what the console sends.
func TestCurl(t *testing.T) {
	t.Parallel()
	request := client.Request{Key: "it's-a-key-$HOME-`x`", Path: "/v1/orders", Body: []byte(`{"a":"it's \n"}`)}
	line := "curl() { printf '%s\\n' \"$@\"; }; API_KEY=ok_TEST\n" + curl("http://127.0.0.1:1", request)
	output, err := exec.CommandContext(t.Context(), "sh", "-c", line).Output()
	require.NoError(t, err)
	require.Equal(t, []string{
		"-i", "http://127.0.0.1:1/v1/orders",
		"-H", "Authorization: Bearer ok_TEST",
		"-H", "Content-Type: application/json",
		"-H", "Idempotency-Key: it's-a-key-$HOME-`x`",
		"-d", `{"a":"it's \n"}`, "",
	}, strings.Split(string(output), "\n"))
}

func TestPlay_providerCalls(t *testing.T) {
	t.Parallel()
	c, _ := newSite(t)
	p := newPlay(c.system, scenario{card: cards()[0], fault: faults()[0]})
	at := p.began.Add(time.Second)
	call := faultproxy.Call{Number: 1, Method: http.MethodPost, Path: "/v1/payment_intents", ArrivedAt: at}
	p.noteCall(call)
	require.Equal(t, []event{{
		at: at, ID: "call-1", At: 1000, Lane: laneProvider, Text: "create the intent", Detail: "no money moves …",
	}}, p.view.Events)
	call.Duration, call.Status = 20*time.Millisecond, 200
	p.noteCall(call)
	require.Len(t, p.view.Events, 1)
	require.Equal(t, "no money moves: 200 after 20 ms", p.view.Events[0].Detail)

	// Retries that the proxy does not forward share an event.
	for number := 2; number < 5; number++ {
		call := faultproxy.Call{Number: number, Method: http.MethodGet, Path: "/v1/payment_intents/pi_1", ArrivedAt: at.Add(time.Second), Dropped: true}
		p.noteCall(call)
		call.Duration = time.Microsecond
		p.noteCall(call)
	}
	require.Len(t, p.view.Events, 2)
	require.Equal(t, "the connection breaks", p.view.Events[1].Detail)
	require.Equal(t, kindFault, p.view.Events[1].Kind)
}

// The provider's list is read later than the charge happened.
func TestPlay_order(t *testing.T) {
	t.Parallel()
	c, _ := newSite(t)
	p := newPlay(c.system, scenario{card: cards()[0], fault: faults()[0]})
	confirm := faultproxy.Call{
		Number: 1, Method: http.MethodPost, Path: "/v1/payment_intents/pi_1/confirm",
		ArrivedAt: p.began.Add(time.Second), Duration: 400 * time.Microsecond, Status: http.StatusOK, Dropped: true,
	}
	p.noteCall(confirm)
	p.note(event{at: p.began.Add(time.Second + 500*time.Microsecond), Lane: laneRow, Text: "SIGKILL"})
	p.put(&p.view, event{ID: "charged", at: p.providerTime, Text: "the card is charged"})
	p.put(&p.view, event{ID: "charged", at: p.began.Add(time.Hour), Text: "the card is charged"}) // listed again
	var texts []string
	for _, e := range p.view.Events {
		texts = append(texts, e.Text)
	}
	require.Equal(t, []string{"confirm the intent", "the card is charged", "SIGKILL"}, texts)
}

func TestPlay_responses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		exchange     client.Attempt
		text, detail string
	}{
		"none":    {client.Attempt{Err: errors.New("reset")}, "gets no response", "the connection broke"},
		"created": {client.Attempt{Response: client.Response{Status: 201, Body: []byte(`{"id":"x"}`)}}, "gets 201", "created"},
		"replayed": {client.Attempt{Response: client.Response{
			Status: 201, Header: http.Header{"Idempotent-Replayed": {"true"}}, Body: []byte(`{}`),
		}}, "gets 201", "created, replayed"},
		"approval": {client.Attempt{Response: client.Response{
			Status: 202, Header: http.Header{"Retry-After": {"5"}},
			Body: []byte(`{"action":{"client_secret": "pi_1_secret_2","payment_intent_id":"pi_1"}}`),
		}}, "gets 202", "requires_action, retry after 5 s"},
		"in progress": {client.Attempt{Response: client.Response{
			Status: 409, Header: http.Header{"Retry-After": {"2"}}, Body: []byte(`{"type":"/problems/idempotency-key-in-progress"}`),
		}}, "gets 409", "idempotency-key-in-progress, retry after 2 s"},
	} {
		c, _ := newSite(t)
		p := newPlay(c.system, scenario{card: cards()[0], fault: faults()[0]})
		p.view.Requests = []requestView{{Title: "The order"}}
		p.noteResponse(test.exchange)
		require.Len(t, p.view.Events, 1, name)
		require.Equal(t, test.text, p.view.Events[0].Text, name)
		require.Equal(t, test.detail, p.view.Events[0].Detail, name)
		require.Len(t, p.view.Requests[0].Responses, 1, name)
		require.NotContains(t, p.view.Requests[0].Body, "pi_1_secret_2", name)
		if test.exchange.Response.Status == http.StatusAccepted {
			require.JSONEq(t, `{"action":{"client_secret":"not shown","payment_intent_id":"pi_1"}}`, p.view.Requests[0].Body)
		}
	}
}

type mailer struct{ err error }

func (m mailer) Send(context.Context, receipts.Message) error { return m.err }

func TestMailbox(t *testing.T) {
	t.Parallel()
	order, other := uuid.New(), uuid.New()
	rejecting := Mailbox{next: mailer{errors.New("full")}}
	require.EqualError(t, rejecting.Send(t.Context(), receipts.Message{OrderID: order}), "full")
	require.Empty(t, rejecting.For(order))

	var box Mailbox
	for range 2 {
		require.NoError(t, box.Send(t.Context(), receipts.Message{OrderID: order, ID: "receipt"}))
	}
	require.Len(t, box.For(order), 2, "a second copy counts")
	require.Empty(t, box.For(other))
	for range maxMails {
		require.NoError(t, box.Send(t.Context(), receipts.Message{OrderID: other}))
	}
	require.Len(t, box.For(other), maxMails)
	require.Empty(t, box.For(order), "the number of mails is bounded")
}
