package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The version of an entry is that of its lock file or its commit.
func TestEntries_version(t *testing.T) {
	all, err := load(".")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	locked := map[string]string{}
	for language, file := range map[string]string{"Go": "go/go.mod", "Node": "node/package.json"} {
		text, err := os.ReadFile(filepath.Join("servers", file))
		require.NoError(t, err)
		locked[language] = string(text)
	}
	for _, one := range all {
		switch {
		case one.Commit != "":
			require.Len(t, one.Commit, 40, one.id) // no branch, which moves
		default:
			require.Contains(t, locked[one.Language], one.Version[strings.LastIndex(one.Version, " ")+1:], one.id)
		}
	}
}

// The page is that of the results.
func TestPage_generated(t *testing.T) {
	all, err := load(".")
	require.NoError(t, err)
	want, err := page(".", all)
	require.NoError(t, err)
	got, err := os.ReadFile("../implementations.md")
	require.NoError(t, err)
	require.Equal(t, want, string(got), "make -C spec generate")
}

func TestMerge_keepsOtherMembers(t *testing.T) {
	base := map[string]any{"commands": map[string]any{"kill": "k", "start": "s"}, "crashes": 20}
	merge(base, map[string]any{"commands": map[string]any{"expire": "e"}, "crashes": 3})
	require.Equal(t, map[string]any{"commands": map[string]any{"kill": "k", "start": "s", "expire": "e"}, "crashes": 3}, base)
}

// A violation of another scenario in a pass does not count: the pass may have caused it.
func TestResult_add(t *testing.T) {
	r := result{Exercised: []string{"race"}, Clauses: map[string]string{"IR-16": "pass"}}
	r.add(result{
		Anomalies: []anomaly{{Scenario: crash, Title: "crash"}, {Scenario: "later"}},
		Exercised: []string{crash, "later"}, Kills: 2, Clauses: map[string]string{"IR-17": "fail: twice"},
	}, crash)
	require.Equal(t, result{
		Anomalies: []anomaly{{Scenario: crash, Title: "crash"}}, Exercised: []string{"race", crash}, Kills: 2,
		Clauses: map[string]string{"IR-16": "pass", "IR-17": "fail: twice"},
	}, r)
}

// A server that is killed a few times without a violation is not known to be safe.
func TestResult_safeAfterTwentyKills(t *testing.T) {
	crashes := column{scenario: crash}
	few := result{Exercised: []string{crash}, Kills: 19}
	require.EqualError(t, few.enough(), "it survived 19 kills, but a safe answer needs 20")
	many := result{Exercised: []string{crash}, Kills: 20}
	require.NoError(t, many.enough())
	require.Equal(t, "ok, 20 kills", many.cell(crashes))
	unsafe := result{Exercised: []string{crash}, Kills: 1, Anomalies: []anomaly{{Scenario: crash, Kind: "EXECUTED TWICE"}}}
	require.NoError(t, unsafe.enough())
	require.Equal(t, "**charged twice**", unsafe.cell(crashes))
	require.NoError(t, new(result).enough())
	require.Equal(t, "–", new(result).cell(crashes))
}

// Half of the concurrent requests have another body. Whether one of them gets the first
// response depends on timing, and a cell must not.
func TestResult_otherBodyAmongConcurrentRequests(t *testing.T) {
	race, other := column{scenario: "race"}, column{scenario: change}
	sequential := anomaly{Kind: anotherRequest, Scenario: change, Clauses: []string{"IR-8"}}
	concurrent := anomaly{Kind: anotherRequest, Scenario: "race", Clauses: []string{"IR-16"}}
	for _, seen := range [][]anomaly{{sequential}, {sequential, concurrent}} {
		r := result{Anomalies: seen, Exercised: []string{"race"}}
		require.Equal(t, "ok", r.cell(race))
		require.Equal(t, "**first response**", r.cell(other))
		require.Equal(t, []anomaly{sequential}, r.in(other))
	}
	alone := result{Anomalies: []anomaly{concurrent}}
	require.Equal(t, []anomaly{concurrent}, alone.in(other))
	twice := result{Anomalies: []anomaly{{Kind: "EXECUTED TWICE", Scenario: "race"}}}
	require.Equal(t, "**charged twice**", twice.cell(race))
}

// A repetition that is refused is neither ok nor without a final response.
func TestResult_refused(t *testing.T) {
	repeat := column{scenario: "repeat"}
	stored := result{Exercised: []string{"repeat"}, Clauses: map[string]string{"IR-19": "fail: the failure is not stored"}}
	require.Equal(t, "ok", stored.cell(repeat))
	stored.Clauses["IR-19"] = "fail: the key of another operation: 404 instead of 422"
	require.Equal(t, "ok", stored.cell(repeat))
	stored.Clauses["IR-19"] = "fail: the success is not stored: its repetition got 422"
	require.Equal(t, "**refused**", stored.cell(repeat))
	// The message of a clause repeats its anomalies, which the page has already.
	stored.Clauses["IR-19"] = "fail: executed twice: 2 charges, expected 1\nthe success is not stored: its repetition got 422"
	require.Equal(t, "the success is not stored: its repetition got 422", stored.in(repeat)[0].Summary)
	for status, want := range map[string]string{"422": "**refused**", "409": "**no final response**", "503": "**no final response**"} {
		r := result{Anomalies: []anomaly{{Kind: "BLOCKED", Scenario: "cut", Summary: "40 attempts, and no success: the last one got " + status}}}
		require.Equal(t, want, r.cell(column{scenario: "cut"}))
	}
}

// An anomaly that the script does not show twice is no answer of the matrix.
func TestChecked_notReproduced(t *testing.T) {
	crashes := column{title: "server killed", scenario: crash, script: crash}
	const blocked, answered = "the same request again: {} 409 (40 s after the start)\ncharges: 1, expected 1", "the same request again: {} 201\ncharges: 1, expected 1"
	for output, want := range map[string]string{
		blocked + "\n\n" + blocked:   "**no final response**",
		blocked + "\n\n" + answered:  notReproduced,
		answered + "\n\n" + answered: notReproduced,
		blocked:                      notReproduced,
		"":                           notReproduced,
	} {
		one := checked{
			subject: subject{implementation: &implementation{id: "one"}, store: store{Name: "redis"}},
			result:  result{Kills: 17, Anomalies: []anomaly{{Kind: "BLOCKED", Scenario: crash, Clauses: []string{"IR-17"}, Summary: "the key is blocked"}}},
			seen:    map[string]string{"one/redis crash": output},
		}
		require.Equal(t, want, one.cell(crashes), output)
		text, err := one.unreproduced(".", crashes)
		require.EqualError(t, err, "one/redis: server killed: neither shown by the case crash nor described by a note", text)
		one.Notes = []note{{Scenario: crash, Text: "It is rare."}}
		text, err = one.unreproduced(".", crashes)
		if strings.Contains(output, "\n\n") {
			require.NoError(t, err)
			require.Equal(t, "\nNot reproduced: server killed, no final response. The key is blocked (IR-17, after 17 kills). "+
				"The two runs of [`reproduce.sh crash`](implementations/reproduce.sh) do not both show it. It is rare.\n", text)
		} else {
			require.Error(t, err, "the case was not run twice")
		}
	}
}

func TestShows(t *testing.T) {
	for output, labels := range map[string][]string{
		"a: {\"id\":\"ch_1\"} 201\nb: {\"id\":\"ch_2\"} 201\ncharges: 2, expected 1": {"charged twice", "charged again"},
		"a: {\"id\":\"ch_1\"} 201\nb: {\"id\":\"ch_1\"} 201\ncharges: 1, expected 1": {"first response", "first account's response"},
		"a: {} 503\nb: {} 503\ncharges: 0, expected 1":                               {"no final response"},
		"a: {} 409\nb: {} 422\ncharges: 1, expected 1":                               {"no final response", "failure answered, charged", refused},
		"a: {} 201\nb: {} 201\ncharges: 1, expected 1":                               nil,
	} {
		var shown []string
		for _, label := range []string{"charged twice", "charged again", "first response", "first account's response", "no final response", "failure answered, charged", refused} {
			if shows(output, label) {
				shown = append(shown, label)
			}
		}
		require.Equal(t, labels, shown, output)
	}
}

// A script whose two runs end differently has not shown what a note says about both.
func TestStatuses(t *testing.T) {
	run := "at once: {\"id\":\"ch_100001\"} 201\nafter 2 s: {} 409 (40 s after the start)\nresponses: 75 409\ncharges: 1, expected 1"
	require.Equal(t, []string{"201", "409"}, statuses(run))
	require.NotEqual(t, statuses(run), statuses("at once: {\"id\":\"ch_100001\"} 201"))
}
