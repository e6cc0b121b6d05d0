package recorded

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"example.com/orders-api/migrations/dbtest"
)

var recordings = flag.String("recordings", "testdata", "the folder of the recordings")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(dbtest.Main{M: m})
}

// TestRecordings judges all lines of the folder, by default the invented ones of testdata.
func TestRecordings(t *testing.T) {
	all := read(t, *recordings)
	r := run(t, all, honest)
	for _, difference := range r.differences {
		t.Error(difference)
	}
	r.print(all)
}

func run(t *testing.T, all []exchange, edit plant) *report {
	t.Helper()
	r, s := newReport(), newShop(t)
	for _, e := range all {
		if e.isEvent() {
			askEvent(r, s, e, edit)
			continue
		}
		askClient(t, r, e, edit)
		askFake(t, r, e, edit)
		askAPI(r, s, e, edit)
	}
	return r
}

func (r *report) print(all []exchange) {
	count := func(of func(exchange) string) string {
		numbers := map[string]int{}
		for _, e := range all {
			numbers[of(e)]++
		}
		return words(numbers)
	}
	out := os.Stdout
	fmt.Fprintf(out, "lines  %d\n", len(all))
	fmt.Fprintf(out, "versions of the API  %s\n", count(func(e exchange) string {
		version, _, _ := strings.Cut(e.APIVersion, ";")
		if version == "" {
			return "not stated"
		}
		return version
	}))
	fmt.Fprintf(out, "sources  %s\n", count(func(e exchange) string { return e.Source }))
	fmt.Fprintf(out, "what the client read  %s\n", words(r.read))
	fmt.Fprintf(out, "errors by their row in the table  %s\n", words(r.verdicts))
	fmt.Fprintf(out, "responses compared with the fake  %d\n", r.compared)
	fmt.Fprintf(out, "responses not compared with the fake  %s\n", words(r.notCompared))
	fmt.Fprintf(out, "decline codes that reached the API unchanged  %s\n", words(r.declineCodes))
	fmt.Fprintf(out, "differences  %d\n", len(r.differences))
}

// words returns the counts, the largest first.
func words(numbers map[string]int) string {
	names := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int {
		if numbers[a] != numbers[b] {
			return numbers[b] - numbers[a]
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", name, numbers[name]))
	}
	return strings.Join(parts, ", ")
}
