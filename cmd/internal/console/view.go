package console

// The types of this file are sent to the page as JSON. Times are milliseconds since
// the play began.

// view is a play as the page shows it.
type view struct {
	ID       int64         `json:"id"` // of the play
	Key      string        `json:"key"`
	Card     string        `json:"card"`
	Failure  string        `json:"failure"`
	Phase    string        `json:"phase"`
	Error    string        `json:"error"`
	Asks     bool          `json:"asks"` // the customer's window is open
	Row      *rowView      `json:"row"`
	Points   []pointView   `json:"points"`
	Events   []event       `json:"events"`
	Requests []requestView `json:"requests"`
	Ledger   []intentView  `json:"ledger"`
	Mails    []mailView    `json:"mails"`
	Checks   []check       `json:"checks"`
}

// Phases of a play.
const (
	phaseRunning = "running"
	phaseDone    = "done"   // its end state was checked, whatever the results
	phaseFailed  = "failed" // it did not reach its end
)

// rowView is the key's row.
type rowView struct {
	ID        string `json:"id"`
	Point     string `json:"point"`
	Attempt   int    `json:"attempt"`
	LeaseLeft int    `json:"lease_left"` // whole seconds, rounded up; 0 when no run holds it
	LastError string `json:"last_error"`
	Response  int    `json:"response"`
	Order     string `json:"order"`
	Status    string `json:"status"` // of the order
}

// pointView is a recovery point that the row reached.
type pointView struct {
	Name string `json:"name"`
	At   int64  `json:"at"`
}

// event is a line of the timeline.
type event struct {
	ID     string `json:"id"` // the same from view to view
	At     int64  `json:"at"`
	Lane   string `json:"lane"`
	Kind   string `json:"kind"`
	Text   string `json:"text"`
	Detail string `json:"detail"`
}

// Lanes, by the actor of an event.
const (
	laneClient   = "client"
	laneRow      = "row"
	laneProvider = "provider"
	laneMail     = "mail"
)

// Kinds of events, "" for all others.
const (
	kindPoint  = "point"  // the row reached a recovery point
	kindFault  = "fault"  // the chosen failure
	kindRepair = "repair" // its end
	kindMoney  = "money"  // money moved
)

// requestView is a request with all its responses.
type requestView struct {
	Title   string       `json:"title"`
	Curl    string       `json:"curl"`
	Many    bool         `json:"many"` // sent many times at once
	Answers []answerView `json:"answers"`
	Body    string       `json:"body"` // of the last response
}

// answerView is one response; status 0 means no response.
type answerView struct {
	At         int64  `json:"at"`
	Status     int    `json:"status"`
	Text       string `json:"text"`
	RetryAfter int    `json:"retry_after"` // seconds, 0 without
	Replayed   bool   `json:"replayed"`
}

// intentView is a PaymentIntent at the provider.
type intentView struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Amount  string `json:"amount"`
	Charged bool   `json:"charged"`
	Charge  string `json:"charge"`
	Reason  string `json:"reason"` // why the card was declined
}

// mailView is a receipt that was accepted.
type mailView struct {
	At      int64  `json:"at"`
	To      string `json:"to"`
	Subject string `json:"subject"`
	ID      string `json:"id"`
}

// check is a property of the end state, and what was observed.
type check struct {
	Text string `json:"text"`
	OK   bool   `json:"ok"`
	Seen string `json:"seen"`
}
