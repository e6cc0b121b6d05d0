package stripetest

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"
)

const pageRows = 20

// page shows the latest objects and requests without credentials, so it has no secrets.
func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	var text bytes.Buffer
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)

	s.mu.Lock()
	fmt.Fprintf(t, "A fake Stripe. No money moves here.\n\n")
	fmt.Fprintf(t, "%d payment intents\tstatus\tamount\torder\n", len(s.intents.ids))
	for _, pi := range newest(s.intents.all()) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.60q\n", pi.ID, pi.Status, formatAmount(pi.Currency, pi.Amount), pi.Metadata["order_id"])
	}
	fmt.Fprintf(t, "\n%d charges\tstatus\tamount\trefunded\torder\n", len(s.charges.ids))
	for _, ch := range newest(s.charges.all()) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.60q\n", ch.ID, ch.Status, formatAmount(ch.Currency, ch.Amount),
			formatAmount(ch.Currency, ch.Refunded), ch.Metadata["order_id"])
	}
	fmt.Fprintf(t, "\nlast requests\tstatus\treplayed\tkey\tfaults\n")
	for _, r := range newest(s.requests) {
		fmt.Fprintf(t, "%s %s %.80q\t%d\t%t\t%.60q\t%v\n",
			r.Time.UTC().Format(time.TimeOnly), r.Method, r.Path, r.Status, r.Replayed, r.Key, r.Faults)
	}
	s.mu.Unlock()

	_ = t.Flush() // to memory
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(text.Bytes())
}

func newest[T any](all []T) []T {
	rows := slices.Clone(all[max(0, len(all)-pageRows):])
	slices.Reverse(rows)
	return rows
}
