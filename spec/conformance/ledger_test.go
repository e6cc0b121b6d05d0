package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// story is a history in short form.
type story struct {
	events []event
	now    float64
	number int
}

func newStory(effects ...string) *story {
	s := &story{}
	s.add(event{Run: &runInfo{Version: version, URL: "http://one", Method: "POST", Path: "/things", Status: 201, Effects: effects, Late: 9, Settled: 3}})
	return s.count()
}

func (s *story) add(e event) *story {
	s.now++
	e.At, e.Clause = s.now, "IR-17"
	s.events = append(s.events, e)
	return s
}

// ask adds a request. The response is a status, and an id if it is a success.
func (s *story) ask(key, body, response string, edits ...func(*attempt)) *story {
	s.number++
	a := &attempt{Number: s.number, Who: ownAccount, Account: ownAccount, Method: "POST", Path: "/things", Keys: []string{key}, Body: body, Sent: s.now + 0.2, Ended: s.now + 0.4}
	status, id, _ := strings.Cut(response, " ")
	a.ID = id
	switch status {
	case "201":
		a.Status, a.Answer, a.Response = 201, succeeded, `{"id":"`+id+`"}`
	case "503":
		a.Status, a.Answer = 503, open
	case "400":
		a.Status, a.Answer = 400, rejected
	default:
		a.Answer = open
	}
	for _, edit := range edits {
		edit(a)
	}
	return s.add(event{Attempt: a})
}

func as(account string) func(*attempt) {
	return func(a *attempt) { a.Who, a.Account = account, account }
}

func answers(body string) func(*attempt) { return func(a *attempt) { a.Response = body } }

// count adds a count of things: "id" or "id with its value".
func (s *story) count(things ...string) *story {
	t := tally{}
	for _, thing := range things {
		id, value, _ := strings.Cut(thing, " with ")
		t.Items = append(t.Items, item{ID: id, Values: []string{value}})
	}
	return s.add(event{Effects: map[string]tally{"things": t}})
}

// wait is long enough that no earlier request can be in progress.
func (s *story) wait() *story {
	s.now += 9
	return s
}

func (s *story) fault(name string) *story { return s.add(event{Fault: &fault{Name: name}}) }

// sees returns the title of each anomaly.
func (s *story) sees(t *testing.T) []string {
	t.Helper()
	titles := []string{}
	for _, a := range s.anomalies(t) {
		require.NotEmpty(t, a.Witness, a.Title)
		titles = append(titles, a.Title)
	}
	return titles
}

// anomalies are those of the history after it was written and read.
func (s *story) anomalies(t *testing.T) []anomaly {
	t.Helper()
	var file bytes.Buffer
	written := recorder{file: &file, redact: func(text string) string { return text }}
	for _, e := range s.events {
		written.write(e)
	}
	require.NoError(t, written.err)
	events, err := readHistory(&file)
	require.NoError(t, err)
	return judge(events).Anomalies
}

func TestLedger(t *testing.T) {
	t.Parallel()
	const first, second, third, key = "or_first_1", "or_second_2", "or_third_3", "key-of-the-request"
	for name, c := range map[string]struct {
		story *story
		sees  []string
	}{
		"one request, one effect": {newStory("things").ask(key, "a", "201 "+first).count(first), nil},
		"two effects": {
			newStory("things").ask(key, "a", "201 "+first).count(first, second), []string{"EXECUTED TWICE by a single request"},
		},
		"an effect that comes with the retry": {
			newStory("things").ask(key, "a", "").count().ask(key, "a", "201 "+first).count(first), nil,
		},
		"an effect of an earlier window that no response names": {
			newStory("things").ask(key, "a", "503").count(first).ask("another key", "a", "201 "+second).count(second), nil,
		},
		"a late effect of a request without a response": {
			newStory("things").ask(key, "a", "").count().ask("another key", "a", "201 "+second).count(first, second), nil,
		},
		"a second effect after a crash": {
			newStory("things").ask(key, "a", "").fault("kill").ask(key, "a", "201 "+second).count(first, second), []string{"EXECUTED TWICE after a crash"},
		},
		"a reused key that is rejected, yet executed": {
			newStory("things").ask(key, "a", "201 "+first).ask(key, "b", "400").count(first, second), []string{"EXECUTED TWICE with a changed body"},
		},
		"a rejected request that is executed": {
			newStory("things").ask(key, "a", "400").count(first), []string{"FAILURE ANSWERED, YET EXECUTED by a single request"},
		},
		"a failure after an unknown outcome": {
			newStory("things").ask(key, "a", "").fault("interrupt").ask(key, "a", "400").count(first), []string{"FAILURE ANSWERED, YET EXECUTED when a dependency fails"},
		},
		"a failure in an outage, and its effect beside another key": {
			newStory("things").ask("another key", "a", "201 "+first).count(first).fault("interrupt").ask(key, "a", "400").fault("restore").count().
				ask("a third key", "a", "201 "+third).count(second, third),
			[]string{"FAILURE ANSWERED, YET EXECUTED when a dependency fails"},
		},
		"a time-out and a failure in an outage, and their effect much later": {
			newStory("things").ask("another key", "a", "201 "+first).count(first).fault("interrupt").ask(key, "a", "").ask(key, "a", "400").fault("restore").count().
				wait().count().ask("a third key", "a", "201 "+third).count(third).count(second),
			[]string{"FAILURE ANSWERED, YET EXECUTED when a dependency fails"},
		},
		"a failure in an outage, without an effect": {
			newStory("things").ask("another key", "a", "201 "+first).count(first).fault("interrupt").ask(key, "a", "400").fault("restore").count().
				ask("a third key", "a", "").count().count(second), nil,
		},
		"a failure that names what it caused": {
			newStory("things").ask(key, "a", "400", answers(`{"order":"or_late_7","at":"2026-11-30T01:02:03Z"}`)).count().
				ask("another key", "a", "201 "+first).count(first, "ch_late_1 with or_late_7"),
			[]string{"FAILURE ANSWERED, YET EXECUTED by a single request"},
		},
		"failures with the same time as an effect": {
			newStory("things").ask(key, "a", "400", answers(`{"at":"2026-11-30T01:02:03Z"}`)).ask("another key", "a", "").count("ch_late_1 with 2026-11-30T01:02:03Z"), nil,
		},
		"a key that is executed again in a later window": {
			newStory("things").ask(key, "a", "201 "+first).count(first).ask(key, "a", "201 "+second).count(second), []string{"EXECUTED TWICE when the request is repeated"},
		},
		"a success without an effect": {
			newStory("things").ask(key, "a", "201 "+first).count(), []string{"SUCCESS ANSWERED, NOT EXECUTED by a single request"},
		},
		"two forms of a key, one effect": {
			newStory("things").ask(key, "a", "201 "+first).ask(`"`+key+`"`, "a", "201 "+first).count(first), nil,
		},
		"two forms of a key, two effects": {
			newStory("things").ask(key, "a", "201 "+first).ask(`"`+key+`"`, "a", "201 "+second).count(first, second), nil,
		},
		"the same key of two accounts": {
			newStory("things").ask(key, "a", "201 "+first).ask(key, "a", "201 "+second, as("second_account")).
				count(first+" with "+key, second+" with "+key), nil,
		},
		"the response of another account": {
			newStory("things").ask(key, "a", "201 "+first).ask(key, "a", "201 "+first, as("second_account")).count(first),
			[]string{"RESPONSE OF ANOTHER TENANT"},
		},
		"the response of another body": {
			newStory("things").ask(key, `{"n":1}`, "201 "+first).ask(key, `{"n":2}`, "201 "+first).count(first),
			[]string{"RESPONSE OF ANOTHER REQUEST with a changed body"},
		},
		"the same body in another form": {
			newStory("things").ask(key, `{"n":1,"m":2}`, "201 "+first).ask(key, `{ "m": 2.0, "n": 1 }`, "201 "+first).count(first), nil,
		},
		"the response of another key, then its own": {
			newStory("things").ask(key, "a", "201 "+first).ask("another key", "a", "201 "+first).ask("another key", "a", "201 "+second).count(first, second),
			[]string{"RESPONSE OF ANOTHER KEY"},
		},
		"the response of a key of an earlier window": {
			newStory("things").ask(key, "a", "201 "+first).count(first).ask("another key", "a", "201 "+first).count(), []string{"RESPONSE OF ANOTHER KEY"},
		},
		"two responses mixed up": {
			newStory().ask(key, "a", "201 "+second).ask("another key", "a", "201 "+first).ask(key, "a", "201 "+first).ask("another key", "a", "201 "+second).count(),
			[]string{"RESPONSE OF ANOTHER KEY"},
		},
		"two ids for one key, if nothing is counted": {
			newStory().ask(key, "a", "201 "+first).ask(key, "a", "201 "+second).count(), []string{"EXECUTED TWICE when the request is repeated"},
		},
		"an excess beside other traffic is not judged": {
			newStory("things").ask(key, "a", "").ask("another key", "b", "201 "+second).count(first, second, third).wait().count().count("or_foreign"), nil,
		},
		"other traffic, if all items have keys": {
			newStory("things").ask(key, "a", "201 "+first).ask("another-key", "a", "201 "+second).ask("a-third-key", "a", "201 "+third).
				count(first+" with "+key, second+" with another-key", third+" with a-third-key").
				ask("a-fourth-key", "a", "201 or_fourth_4").count("or_fourth_4 with a-fourth-key", "or_foreign with nothing"), nil,
		},
	} {
		if c.sees == nil {
			c.sees = []string{}
		}
		require.Equal(t, c.sees, c.story.sees(t), name)
	}
}

// An effect in excess belongs to the window that shows it, whatever earlier requests are open.
func TestLedger_excess(t *testing.T) {
	t.Parallel()
	const first, second, third, key = "or_first_1", "or_second_2", "or_third_3", "key-of-the-request"
	cut := func(a *attempt) { a.Cut = "while the request is in progress" }
	earlier := map[string]func(s *story) *story{
		"nothing":         func(s *story) *story { return s },
		"an error":        func(s *story) *story { return s.ask("one", "a", "503").count() },
		"an interruption": func(s *story) *story { return s.ask("one", "a", "").fault("kill").count() },
		"both, and an executed request without a response": func(s *story) *story {
			return s.ask("one", "a", "").fault("kill").count().ask("two", "a", "500").count().ask("three", "a", "", cut).count(third)
		},
	}
	excesses := map[string]func(s *story) *story{
		"EXECUTED TWICE when the connection breaks": func(s *story) *story {
			return s.ask(key, "a", "", cut).ask(key, "a", "201 "+first).count(first, second)
		},
		"EXECUTED TWICE when the request is repeated": func(s *story) *story {
			return s.ask(key, "a", "201 "+first).count(first).ask(key, "a", "201 "+first).count(second)
		},
		"EXECUTED TWICE after a crash": func(s *story) *story {
			return s.ask(key, "a", "").ask("five", "a", "").fault("kill").ask(key, "a", "201 "+first).ask("five", "a", "201 or_fifth_5").
				count(first, second, "or_fifth_5")
		},
	}
	for before, begin := range earlier {
		for title, exceed := range excesses {
			s := begin(newStory("things"))
			require.Equal(t, []string{title}, exceed(s.wait().count()).sees(t), before)
		}
	}
}

// A request whose connection broke may be executed late although its repetition has succeeded.
// That is no other traffic, which would make all violations doubtful.
func TestLedger_straggler(t *testing.T) {
	t.Parallel()
	cut := func(a *attempt) { a.Cut = cutRunning.String() }
	straggler := newStory("things").ask("one", "a", "", cut).ask("one", "a", "201 or_first_1").count("or_first_1").count("or_second_2")
	require.Equal(t, []string{"EXECUTED TWICE when the connection breaks"}, straggler.sees(t))
	require.Empty(t, judge(straggler.events).Foreign)
	require.NotEmpty(t, judge(straggler.wait().count().count("or_foreign").events).Foreign)

	beside := newStory("things").ask("one", "a", "", cut).ask("one", "a", "201 or_first_1").count("or_first_1").
		ask("two", "a", "201 or_second_2").count("or_second_2", "or_third_3")
	require.Equal(t, []string{"EXECUTED TWICE when the connection breaks"}, beside.sees(t))
}

// One open request excuses one late effect, and only for a time.
func TestLedger_lateEffects(t *testing.T) {
	t.Parallel()
	const first, second, third, fourth = "or_first_1", "or_second_2", "or_third_3", "or_fourth_4"
	open := func() *story { return newStory("things").ask("one", "a", "").ask("two", "a", "").count() }
	require.Empty(t, open().ask("three", "a", "201 "+first).count(first, second, third).sees(t))
	require.NotEmpty(t, open().ask("three", "a", "201 "+first).count(first, second, third, fourth).sees(t))
	require.NotEmpty(t, open().ask("three", "a", "201 "+first).count(first, second, third).ask("three", "a", "201 "+first).count(fourth).sees(t))
}

// The witness has the keys of the violation, and the faults while they were in use.
func TestLedger_witness(t *testing.T) {
	t.Parallel()
	const first, second = "or_first_1", "or_second_2"
	together := func(a *attempt) { a.Sent, a.Ended = 2.1, 2.5 }
	ordered := func(a *attempt) { a.Intent = "the order of one" }
	faulty := newStory("things").ask("the-first-key", "a", "", together).ask("the-first-key", "a", "201 "+first, together).fault("kill").fault("start").
		ask("the-second-key", "b", "201 "+second).count(first, second, "or_third_3 with the-first-key")
	require.Equal(t, "2 requests, 1 key: 2 things, expected 1", faulty.anomalies(t)[0].Summary)
	require.NotContains(t, strings.Join(faulty.anomalies(t)[0].Witness, "\n"), "kill")

	obedient := newStory("things").ask("one", "a", "503", ordered).ask("one", "a", "201 "+first, ordered).count(first, second).anomalies(t)
	require.Equal(t, "key one  things 2 (or_first_1, or_second_2)", obedient[0].Witness[0])
	obedient = newStory("things").ask("one", "a", "503", ordered).ask("two", "a", "201 "+first, ordered).count(first, second).anomalies(t)
	require.Equal(t, "EXECUTED TWICE by a client that obeys the responses", obedient[0].Title)
	require.Equal(t, "one order with 2 keys  things 2 (or_first_1, or_second_2)", obedient[0].Witness[0])
}

// The late effect of a failure is no other traffic, and shows in no other clause.
func TestLedger_lateFailure(t *testing.T) {
	t.Parallel()
	s := newStory("things").ask("one", "a", "201 or_first_1").count("or_first_1").fault("interrupt").ask("two", "a", "400").fault("restore").count()
	s.count("or_second_2")
	late := &s.events[len(s.events)-1]
	late.Clause = "IR-34"
	r := judge(s.events)
	require.Empty(t, r.Foreign)
	require.Equal(t, []string{"IR-17"}, r.Anomalies[0].Clauses)
	require.Equal(t, "1 request, 1 key: 1 things, expected 0; dependency interrupted at -200 ms", r.Anomalies[0].Summary)
	require.NotEmpty(t, judge(s.count("or_third_3").events).Foreign, "only one effect is that of the failure")
}

// An excess that no response names is no violation beside other traffic, but no proof either.
func TestLedger_otherTraffic(t *testing.T) {
	t.Parallel()
	r := judge(newStory("things").count("or_foreign").ask("one", "a", "201 or_first_1").count("or_first_1").events)
	require.Equal(t, noViolation, r.Safety)
	require.Contains(t, r.Foreign, "or_foreign")
	r = judge(newStory("things").count("or_foreign").ask("one", "a", "201 or_first_1").count("or_first_1", "or_second_2").events)
	require.Equal(t, notJudged, r.Safety)
	require.Contains(t, r.text(), "SAFETY    NOT JUDGED: the account has other traffic")
}

func TestCoverage_pause(t *testing.T) {
	t.Parallel()
	c := coverage{faults: 2}
	require.Equal(t, "2 pauses", c.text(paused, 2))
	require.Equal(t, "2 pauses of the only address, so nothing took a key over meanwhile", c.text(paused, 1))
}
