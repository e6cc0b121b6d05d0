package demo

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The page gets the types of this file as JSON. Times are milliseconds since the beginning
// of the play.

type view struct {
	ID       int64         `json:"id"` // of the play
	Key      string        `json:"key"`
	Fault    string        `json:"fault"`
	Phase    string        `json:"phase"`
	Error    string        `json:"error"`
	Asks     bool          `json:"asks"` // the customer's window is open
	Row      *keyRow       `json:"row"`
	Points   []pointView   `json:"points"`
	Events   []event       `json:"events"`
	Requests []requestView `json:"requests"`
	Payments []paymentView `json:"payments"`
	Mails    []Mail        `json:"mails"`
	Checks   []check       `json:"checks"`
}

const (
	phaseRunning = "running"
	phaseDone    = "done"   // the end state was checked, whatever the results
	phaseFailed  = "failed" // the scenario did not reach its end
)

type pointView struct {
	Name string  `json:"name"`
	At   float64 `json:"at"`
}

type event struct {
	at      time.Time // at its source; zero means now
	ID      string    `json:"id"` // the same from view to view
	At      float64   `json:"at"`
	Lane    string    `json:"lane"`
	Kind    string    `json:"kind"`
	Text    string    `json:"text"`
	Detail  string    `json:"detail"`
	Problem string    `json:"problem"` // slug of a problem page
}

const (
	laneClient   = "client"
	laneRow      = "row"
	laneProvider = "provider"
	laneMail     = "mail"
)

// Kinds of events, "" for all others.
const (
	kindPoint  = "point"  // the row reached a recovery point
	kindFault  = "fault"  // the chosen fault
	kindRepair = "repair" // its end
	kindMoney  = "money"  // money moved
)

type requestView struct {
	Title      string         `json:"title"`
	Curl       string         `json:"curl"`
	Concurrent bool           `json:"concurrent"` // sent several times at once
	Responses  []responseView `json:"responses"`
	Body       string         `json:"body"` // of the last response
}

// responseView is a response; status 0 means none.
type responseView struct {
	At         float64 `json:"at"`
	Status     int     `json:"status"`
	Text       string  `json:"text"` // without the status
	Problem    string  `json:"problem"`
	RetryAfter int     `json:"retry_after"` // seconds, 0 without
}

type paymentView struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Amount  string `json:"amount"`
	Charged bool   `json:"charged"`
	Reason  string `json:"reason"` // why the card was declined
}

type check struct {
	Text     string `json:"text"`
	OK       bool   `json:"ok"`
	Observed string `json:"observed"`
}

func (p *play) phase() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view.Phase
}

func (p *play) since(at time.Time) float64 {
	return max(float64(at.Sub(p.began).Microseconds())/1000, 0)
}

func (p *play) note(e event) {
	p.update(func(v *view) {
		e.ID = fmt.Sprintf("%s-%d", e.Lane, len(v.Events))
		p.put(v, e)
	})
}

// put adds an event, or replaces the one with the same id and keeps its time. Events are in
// the order in which they happened.
func (p *play) put(v *view, e event) {
	if e.at.IsZero() {
		e.at = time.Now()
	}
	e.At = p.since(e.at)
	if i := slices.IndexFunc(v.Events, func(old event) bool { return old.ID == e.ID }); i >= 0 {
		e.At = v.Events[i].At
		v.Events[i] = e
	} else {
		v.Events = append(v.Events, e)
	}
	slices.SortStableFunc(v.Events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
}
