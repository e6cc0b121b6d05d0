package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/faultproxy"
)

// noteAnswer adds a response to the latest request.
func (p *play) noteAnswer(e client.Attempt) {
	now := time.Now()
	p.update(func(v *view) {
		request := &v.Requests[len(v.Requests)-1]
		a := answerView{
			At:         p.since(now),
			Status:     e.Response.Status,
			Text:       describe(e.Response),
			RetryAfter: int(e.Response.RetryAfter() / time.Second),
			Replayed:   e.Response.Replayed(),
		}
		request.Answers = append(request.Answers, a)
		request.Body = clientSecret.ReplaceAllString(string(e.Response.Body), `${1}not shown"`)
		if request.Many {
			return // one event for all of them
		}
		got := event{
			ID: fmt.Sprintf("answer-%d-%d", len(v.Requests), len(request.Answers)), At: a.At,
			Lane: laneClient, Text: fmt.Sprintf("gets %d", a.Status), Detail: a.Text,
		}
		if a.Status == 0 {
			got.Kind, got.Text, got.Detail = kindFault, "gets no answer", "the connection broke"
		}
		if a.RetryAfter > 0 {
			got.Detail += fmt.Sprintf(", again after %d s", a.RetryAfter)
		}
		v.put(got)
	})
}

// clientSecret matches the secret of a required action, which the page does not get.
var clientSecret = regexp.MustCompile(`("client_secret":\s*")[^"]*"`)

// describe describes a response in a few words. The zero value means no response.
func describe(a client.Response) string {
	if a.Status == 0 {
		return "no answer"
	}
	text := problemOf(a)
	switch {
	case a.Status == http.StatusAccepted:
		text = "the customer must approve"
	case text == "":
		text = strings.ToLower(http.StatusText(a.Status))
	}
	if a.Replayed() {
		text += ", replayed"
	}
	return text
}

// problemOf returns the slug of a problem response, "" for any other.
func problemOf(a client.Response) string {
	var problem client.Problem
	if json.Unmarshal(a.Body, &problem) != nil {
		return ""
	}
	return strings.TrimPrefix(problem.Type, "/problems/")
}

// noteCall adds a call to the provider.
func (p *play) noteCall(call faultproxy.Call) {
	e := event{ID: fmt.Sprintf("call-%d", call.Number), Lane: laneProvider}
	var what string
	e.Text, what = purpose(call)
	switch {
	case call.Duration == 0:
		e.Detail = what + " …"
	case call.Dropped && call.Status == 0:
		p.noteDropped(e, call)
		return
	case call.Dropped:
		e.Kind = kindFault
		e.Detail = fmt.Sprintf("%s: %d, but the line is cut and the answer lost", what, call.Status)
	default:
		e.Detail = fmt.Sprintf("%s: %d after %d ms", what, call.Status, call.Duration.Milliseconds())
	}
	if call.Status >= http.StatusInternalServerError {
		e.Kind = kindFault
	}
	p.update(func(v *view) {
		if v.Phase != phaseRunning {
			return // sent by a person's curl after the play
		}
		e.At = p.since(call.ArrivedAt)
		v.put(e)
	})
	if call.Duration > 0 {
		p.ledgerChanged()
	}
}

// ledgerChanged makes poll read the provider's intents.
func (p *play) ledgerChanged() {
	select {
	case p.ledgerDue <- struct{}{}:
	default: // a read is already due
	}
}

// noteDropped adds a call that the proxy did not forward. Retries of one purpose
// share an event.
func (p *play) noteDropped(e event, call faultproxy.Call) {
	p.update(func(v *view) {
		v.Events = slices.DeleteFunc(v.Events, func(old event) bool { return old.ID == e.ID })
		p.dropped[e.Text]++
		e.ID, e.Kind, e.At = "refused-"+e.Text, kindFault, p.since(call.ArrivedAt)
		e.Detail = "does not get through"
		if n := p.dropped[e.Text]; n > 1 {
			e.Detail += fmt.Sprintf(", %d times", n)
		}
		v.put(e)
	})
}

// purpose returns what a call to the provider does, and what that means.
func purpose(call faultproxy.Call) (text, what string) {
	path := strings.TrimPrefix(call.Path, "/v1/payment_intents")
	switch {
	case call.Method == http.MethodPost && path == "":
		return "create the intent", "no money moves"
	case strings.HasSuffix(path, "/confirm"):
		return "confirm the intent", "charge the card"
	case strings.HasSuffix(path, "/cancel"):
		return "cancel the intent", "so that it can never be charged"
	case path == "":
		return "list the intents", "is ours among them"
	default:
		return "read the intent", "what became of it"
	}
}
