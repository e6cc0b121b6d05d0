package demo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/demo/faultproxy"
)

// noteResponse returns the id of its event.
func (p *play) noteResponse(attempt client.Attempt) (id string) {
	p.update(func(v *view) {
		request := &v.Requests[len(v.Requests)-1]
		r := responseView{
			At:         p.since(time.Now()),
			Status:     attempt.Response.Status,
			Text:       textOf(attempt.Response),
			Problem:    problemOf(attempt.Response),
			RetryAfter: int(attempt.Response.RetryAfter() / time.Second),
		}
		request.Responses = append(request.Responses, r)
		request.Body = clientSecret.ReplaceAllString(string(attempt.Response.Body), `${1}not shown"`)
		if request.Concurrent {
			return // one event for all of them
		}
		e := event{Lane: laneClient, Text: fmt.Sprintf("gets %d", r.Status), Detail: r.Text, Problem: r.Problem}
		if r.Status == 0 {
			e.Kind, e.Text, e.Detail = kindFault, "gets no response", "the connection broke"
		}
		if r.RetryAfter > 0 {
			e.Detail += fmt.Sprintf(", retry after %d s", r.RetryAfter)
		}
		id = p.put(v, e)
	})
	return id
}

var clientSecret = regexp.MustCompile(`("client_secret":\s*")[^"]*"`)

func textOf(r client.Response) string {
	text := problemOf(r)
	switch {
	case r.Status == 0:
		text = "no response"
	case r.Status == http.StatusAccepted:
		text = "requires_action"
	case text == "":
		text = strings.ToLower(http.StatusText(r.Status))
	}
	if r.Replayed() {
		text += ", replayed"
	}
	return text
}

func describe(r client.Response) string { return fmt.Sprintf("%d %s", r.Status, textOf(r)) }

func problemOf(r client.Response) string {
	var problem client.Problem
	if json.Unmarshal(r.Body, &problem) != nil {
		return ""
	}
	return strings.TrimPrefix(problem.Type, "/problems/")
}

// noteCall returns the id of its event.
func (p *play) noteCall(call faultproxy.Call) (id string) {
	text, purpose := meaning(call)
	e := event{ID: fmt.Sprintf("call-%d", call.Number), at: call.ArrivedAt, Lane: laneProvider, Text: text}
	switch {
	case call.Dropped && call.Status == 0: // its retries share one event
		e.ID, e.Kind, e.Detail = "dropped-"+text, kindFault, "the connection breaks"
	case call.Duration == 0:
		e.Detail = purpose + " …"
	case call.Dropped:
		e.Kind, e.Detail = kindFault, fmt.Sprintf("%s: %d, but the connection breaks and the response is lost", purpose, call.Status)
	default:
		e.Detail = fmt.Sprintf("%s: %d after %d ms", purpose, call.Status, call.Duration.Milliseconds())
	}
	if call.Status >= http.StatusInternalServerError {
		e.Kind = kindFault
	}
	p.update(func(v *view) {
		p.put(v, e)
		if call.Confirms() && call.Status != 0 {
			p.providerTime = call.ArrivedAt.Add(call.Duration)
		}
	})
	return e.ID
}

func meaning(call faultproxy.Call) (text, purpose string) {
	path := strings.TrimPrefix(call.Path, "/v1/payment_intents")
	switch {
	case call.Method == http.MethodPost && path == "":
		return "create the intent", "no money moves"
	case call.Confirms():
		return "confirm the intent", "charge the card"
	case strings.HasSuffix(path, "/cancel"):
		return "cancel the intent", "it can never be charged"
	case path == "":
		return "list the intents", "find the intent of this order"
	case path == "/search":
		return "search the intent", "find the intent of lost rows"
	default:
		return "read the intent", "learn the outcome"
	}
}
