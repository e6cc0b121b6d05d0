package demo

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The page gets these types as JSON. Times are milliseconds since the beginning.

type view struct {
	ID       int64         `json:"id"`
	Key      string        `json:"key"`
	Fault    string        `json:"fault"`
	Phase    string        `json:"phase"`
	Error    string        `json:"error"`
	Asks     bool          `json:"asks"`
	Steps    []rowStep     `json:"steps"`
	Designs  []designView  `json:"designs"`
	Events   []event       `json:"events"`
	Requests []requestView `json:"requests"`
	Payments []paymentView `json:"payments"`
	Mails    []Mail        `json:"mails"`
	Checks   []check       `json:"checks"`
}

// rowStep is the key's row from an event of the timeline on, in the columns of
// docs/how-it-works.md.
type rowStep struct {
	Event   string   `json:"event"`
	Columns []column `json:"columns"`
}

type column struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

const (
	phaseRunning = "running"
	phaseDone    = "done" // the end state was checked, whatever the results
	phaseFailed  = "failed"
)

type event struct {
	at      time.Time
	ID      string  `json:"id"`
	At      float64 `json:"at"`
	Lane    string  `json:"lane"`
	Kind    string  `json:"kind"`
	Text    string  `json:"text"`
	Detail  string  `json:"detail"`
	Problem string  `json:"problem"`
}

const (
	laneClient   = "client"
	laneRow      = "row"
	laneProvider = "provider"
	laneMail     = "mail"
)

// Kinds of events, "" for all others.
const (
	kindPoint  = "point"
	kindFault  = "fault"
	kindRepair = "repair"
	kindMoney  = "money"
)

type requestView struct {
	Title      string         `json:"title"`
	Curl       string         `json:"curl"`
	Concurrent bool           `json:"concurrent"`
	Responses  []responseView `json:"responses"`
	Body       string         `json:"body"`
}

// responseView is a response; status 0 means none.
type responseView struct {
	At         float64 `json:"at"`
	Status     int     `json:"status"`
	Text       string  `json:"text"`
	Problem    string  `json:"problem"`
	RetryAfter int     `json:"retry_after"`
}

func (r responseView) String() string {
	if r.Status == 0 {
		return r.Text
	}
	return fmt.Sprintf("%d %s", r.Status, r.Text)
}

type paymentView struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Amount  string `json:"amount"`
	Charged bool   `json:"charged"`
	Result  string `json:"result"`
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

func (p *play) note(e event) { p.update(func(v *view) { p.put(v, e) }) }

// put adds an event, or replaces the one with the same id and keeps its time. It
// returns the id of a new one, otherwise "".
func (p *play) put(v *view, e event) (added string) {
	if e.ID == "" {
		e.ID = fmt.Sprintf("%s-%d", e.Lane, len(v.Events))
	}
	if e.at.IsZero() {
		e.at = time.Now()
	}
	e.At = p.since(e.at)
	if i := slices.IndexFunc(v.Events, func(old event) bool { return old.ID == e.ID }); i >= 0 {
		e.At = v.Events[i].At
		v.Events[i] = e
	} else {
		v.Events = append(v.Events, e)
		added = e.ID
	}
	slices.SortStableFunc(v.Events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	return added
}
