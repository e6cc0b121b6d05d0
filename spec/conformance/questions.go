package main

import "slices"

// scenario is what happened to a key while it was in use. It is a column of the matrix.
type scenario string

const (
	once       scenario = "one"    // one request
	repeated   scenario = "repeat" // the same request again
	differing  scenario = "change" // another body with the same key
	concurrent scenario = "race"
	cutOff     scenario = "cut"    // a connection broke
	crashed    scenario = "crash"  // the server was killed
	paused     scenario = "pause"  // the server was stopped for a time
	storeLost  scenario = "store"  // the server's store was killed
	outage     scenario = "outage" // a dependency was interrupted
	expiry     scenario = "expiry" // commands.expire
	later      scenario = "later"  // a key of an earlier clause, at the end or with -recheck
)

// question is what the report answers about safety.
type question struct {
	scenario scenario
	text     string                  // "executed twice …"
	cause    string                  // the usual one
	missing  func(p *profile) string // the member without which it is not exercised, or ""
}

func never(*profile) string { return "" }

// questions are in the order of the matrix, which is that of increasing effort.
func questions() []question {
	return []question{
		{once, "by a single request", "the handler causes the effect twice", never},
		{repeated, "when the request is repeated", "the response is not stored, or is stored under another key", never},
		{differing, "with a changed body", "the key is not compared with the request before the effect", never},
		{concurrent, "by concurrent duplicates", "the key is looked up before it is stored; take it atomically, for example by a unique constraint", never},
		{cutOff, "when the connection breaks", "the work ends with the connection, or the key is released when the client is gone", never},
		{crashed, "after a crash", "the effect happens before its identifier is stored, or the keys are only in memory", func(p *profile) string {
			return absent(p.Commands.Kill == "", "commands.kill and commands.start")
		}},
		{outage, "when a dependency fails", "a failed attempt starts again instead of finding the effect of the first", func(p *profile) string {
			return absent(p.Commands.Interrupt == "", "commands.interrupt and commands.restore")
		}},
		{expiry, "after the lifetime of the key", "a deleted key is a new one; keep a record that it was used", func(p *profile) string {
			return absent(p.Commands.Expire == "", "commands.expire")
		}},
		{later, "when an older key is used again", "the lifetime of a key is shorter than its retries", never},
	}
}

func absent(is bool, member string) string {
	if is {
		return member
	}
	return ""
}

func (s scenario) question() question {
	all := questions()
	i := slices.IndexFunc(all, func(q question) bool { return q.scenario == s })
	if i < 0 {
		return question{scenario: s, text: "(" + string(s) + ")", missing: never}
	}
	return all[i]
}
