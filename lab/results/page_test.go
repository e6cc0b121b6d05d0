package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the tables of the pages")

// essential are the figures of docs/proof.md, of runs whose other figures only README.md has.
var essential = map[string][]string{
	"model": {"states reached, none with a violation"},
	"soak": {
		"orders", "charges", "receipts", "refunds", "purchases of the example shop", "events to the shops",
		"kills", "pauses", "database crashes", "failover", "provider faults", "history", "violations",
	},
	"steady": {
		"WAL records of an order, bytes", "dead rows", "sessions",
		"serve: CPU of an order, CPU-ms", "serve: memory MiB", "serve: goroutines", "serve: descriptors",
		"requests", "orders", "receipts",
	},
	"recorded": {"exchanges and events", "responses compared with the fake", "differences"},
}

// TestGenerated compares the tables of the pages with the records, or writes them.
func TestGenerated(t *testing.T) {
	t.Parallel()
	for page, names := range map[string]map[string][]string{"../../docs/proof.md": essential, "README.md": nil} {
		old, err := os.ReadFile(page)
		require.NoError(t, err)
		text := string(old)
		for _, r := range runs() {
			marked := regexp.MustCompile(`(?s)(<!-- record:begin ` + r.name + ` -->\n).*?(<!-- record:end -->\n)`)
			require.Len(t, marked.FindAllString(text, -1), 1, "%s has no table of the run %s", page, r.name)
			table := marked.FindStringSubmatch(text)
			text = strings.Replace(text, table[0], table[1]+r.table(t, names[r.name])+table[2], 1)
		}
		if *update {
			require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
			continue
		}
		require.Equal(t, text, string(old), "%s: make -C lab generate writes the tables", page)
	}
}

// maps removes how Go prints a map.
var maps = strings.NewReplacer("map[", "", "]", "")

// table has the figures with these names, or all.
func (r run) table(t *testing.T, names []string) string {
	t.Helper()
	all, err := records("results.json")
	require.NoError(t, err)
	last, ok := all[r.name]
	if !ok {
		return fmt.Sprintf("No run of `%s` is recorded.\n", r.command)
	}
	rows := fmt.Sprintf("| `%s` on %s | %s on %d cores |\n| --- | --- |\n",
		last.Command, last.Date, last.Took, last.Cores)
	for _, f := range last.Figures {
		name, value := f[0], maps.Replace(f[1])
		if names != nil && !slices.Contains(names, name) {
			continue
		}
		if regexp.MustCompile(`^[A-Z]\w+$`).MatchString(name) {
			name = "`" + name + "`" // of a variant or a test
		}
		if name != "seed" && name != "versions of the API" {
			value = readable(value)
		}
		rows += fmt.Sprintf("| %s | %s |\n", name, value)
	}
	return rows
}

// The figures of two pages outside of the tables are those of the record.
func TestRecorded_inPages(t *testing.T) {
	t.Parallel()
	all, err := records("results.json")
	require.NoError(t, err)
	figures := map[string]string{}
	for _, f := range all["recorded"].Figures {
		figures[f[0]] = f[1]
	}
	without, of, _ := strings.Cut(figures["declines after which the intent has no card"], " of ")
	require.Equal(t, without, of)
	for page, sentence := range map[string]string{
		"../../README.md":            "[" + figures["exchanges and events"] + " exchanges and events](",
		"../../docs/how-it-works.md": "all " + without + " [recorded](",
	} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Contains(t, string(text), sentence, page)
	}
}

// readable separates the thousands of long numbers, and writes out the exponents of Spin.
func readable(text string) string {
	return regexp.MustCompile(`\d+(\.\d+)?(e\+\d+)?`).ReplaceAllStringFunc(text, func(number string) string {
		digits := number
		if strings.Contains(number, "e") {
			whole, _ := strconv.ParseFloat(number, 64) // the pattern matches only valid numbers
			digits = strconv.FormatFloat(whole, 'f', 0, 64)
		}
		if strings.Contains(digits, ".") {
			return digits
		}
		for i := len(digits) - 3; i > 0; i -= 3 {
			digits = digits[:i] + "," + digits[i:]
		}
		return digits
	})
}

func TestReadable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"3713": "3,713", "1518178": "1,518,178", "1.4839e+08": "148,390,000", "median 28.4 s": "median 28.4 s",
		"20000; 201: 15448, 402: 2600": "20,000; 201: 15,448, 402: 2,600",
	} {
		require.Equal(t, want, readable(text))
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	r := run{command: "make -C lab example", figures: []figure{
		{"cases", `^matrix: (\d+) cases`}, {"tests that passed", `^--- PASS: `}, {"", `^(\w+) {2,}(.*)$`},
	}}
	figures, err := r.read("matrix: 3 cases\n--- PASS: A\n--- PASS: B\norders  20  201: 15\n")
	require.NoError(t, err)
	require.Equal(t, [][2]string{{"cases", "3"}, {"tests that passed", "2"}, {"orders", "20; 201: 15"}}, figures)

	_, err = r.read("matrix: 3 cases\n")
	require.ErrorContains(t, err, "printed nothing like ^--- PASS: ")
}
