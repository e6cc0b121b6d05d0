package main

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/lab/measure"
)

var update = flag.Bool("update", false, "write the tables of README.md")

// TestGenerated compares the tables of README.md with results.json.
func TestGenerated(t *testing.T) {
	t.Parallel()
	var r results
	require.NoError(t, r.read("results.json"))
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	text := string(page)
	for name, table := range map[string]string{
		"16": r.rates(16), "64": r.rates(64), "targets": r.targets(), "costs": r.costs(), "kills": r.faults(true), "responses": r.faults(false),
	} {
		marked := regexp.MustCompile(`(?s)(<!-- peers:begin ` + name + ` -->\n).*?(<!-- peers:end -->\n)`)
		require.Regexp(t, marked, text)
		text = marked.ReplaceAllString(text, "${1}"+table+"${2}")
	}
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(text), 0o644))
		return
	}
	require.Equal(t, text, string(page), "make -C lab generate writes the tables")
}

// rates has the medians of all rounds.
func (r results) rates(clients int) string {
	rows := header("peer", "orders/s", "this program makes", "p50", "p99", "CPU of the API", "of its server", "of PostgreSQL", "WAL")
	for _, p := range all() {
		windows := r.windows(p.name, clients)
		if len(windows) == 0 {
			continue
		}
		of := func(get func(window) float64) float64 { return measure.Median(windows, get) }
		server := "none"
		if p.server != "" {
			server = fmt.Sprintf("%.2f ms", of(func(w window) float64 { return w.Server }))
		}
		rows += row(p.title,
			fmt.Sprintf("%.0f", of(func(w window) float64 { return w.Orders })),
			fmt.Sprintf("%.2f times as many", r.ratio(p.name, clients)),
			fmt.Sprintf("%.1f ms", of(func(w window) float64 { return w.P50 })),
			fmt.Sprintf("%.1f ms", of(func(w window) float64 { return w.P99 })),
			fmt.Sprintf("%.2f ms", of(func(w window) float64 { return w.API })),
			server,
			fmt.Sprintf("%.2f ms", of(func(w window) float64 { return w.PostgreSQL })),
			fmt.Sprintf("%.1f KB", of(func(w window) float64 { return w.WAL })/1000))
	}
	return rows
}

func (r results) windows(peer string, clients int) []window {
	windows := slices.DeleteFunc(slices.Clone(r.Windows), func(w window) bool { return w.Peer != peer || w.Clients != clients })
	slices.SortFunc(windows, func(a, b window) int { return cmp.Compare(a.Round, b.Round) })
	return windows
}

// targets compares with the faster form of each version of DBOS.
func (r results) targets() string {
	rows := header("orders of this program, relative to those of", "clients", "target", "measured")
	for _, t := range []struct {
		title   string
		peers   []string
		clients int
		ratio   float64
	}{
		{"DBOS 1.8.0", []string{"dbos18tx", "dbos18steps"}, 16, 2.2},
		{"DBOS 1.8.0", []string{"dbos18tx", "dbos18steps"}, 64, 2.0},
	} {
		measured := math.Inf(1)
		for _, p := range t.peers {
			measured = min(measured, r.ratio(p, t.clients))
		}
		text := fmt.Sprintf("%.2f times", measured)
		if measured < t.ratio {
			text += ": **missed**"
		}
		rows += row(t.title, fmt.Sprint(t.clients), fmt.Sprintf("%.1f times", t.ratio), text)
	}
	return rows
}

// ratio is the median of each round's ratio, because the speed of a machine drifts.
func (r results) ratio(peer string, clients int) float64 {
	own, other := r.windows(ours, clients), r.windows(peer, clients)
	var ratios []float64
	for i := range min(len(own), len(other)) {
		ratios = append(ratios, own[i].Orders/other[i].Orders)
	}
	if len(ratios) == 0 {
		return math.NaN()
	}
	return measure.Median(ratios, func(ratio float64) float64 { return ratio })
}

func (r results) costs() string {
	rows := header("peer", "round trips to PostgreSQL", "lines of code")
	for _, p := range all() {
		for _, s := range r.Sizes {
			if s.Peer == p.name {
				rows += row(p.title, fmt.Sprintf("%.1f", s.RoundTrips), fmt.Sprint(s.Lines))
			}
		}
	}
	return rows
}

func (r results) faults(kills bool) string {
	rows := header("peer", "keys", "interrupted", "doubled", "lost", "stuck", "wrong answers", "pending orders", "p50 until the answer", "longest")
	for _, p := range all() {
		for _, f := range r.Faults {
			if f.Peer == p.name && (f.Kills > 0) == kills {
				rows += row(p.title, fmt.Sprint(f.Purchases), fmt.Sprint(f.Interrupted), fmt.Sprint(f.Doubled), fmt.Sprint(f.Lost),
					fmt.Sprint(f.Stuck), fmt.Sprint(f.Wrong), fmt.Sprint(f.Pending), fmt.Sprintf("%.1f s", f.P50), fmt.Sprintf("%.1f s", f.Slowest))
			}
		}
	}
	return rows
}

func header(names ...string) string {
	return row(names...) + "| --- |" + strings.Repeat(" ---: |", len(names)-1) + "\n"
}

func row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }
