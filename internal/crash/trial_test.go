package crash_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// trial is one case of the matrix.
type trial struct {
	flow     flow
	n        int    // the boundary, from 1
	what     string // what it is
	moment   moment
	fault    fault
	recovery actor
}

func (c trial) String() string {
	return fmt.Sprintf("%s/%02d-%s/%s/%s", c.flow.name, c.n, c.moment, c.fault, c.recovery)
}

// side is whom the exchange is with.
func (c trial) side() side {
	if strings.Contains(c.what, " /v1/") {
		return provider
	}
	return database
}

// errNotReached says that a run never came to the boundary of its case.
var errNotReached = errors.New("the boundary was not reached")

// run plays the case with a program and returns what is wrong with its end. An
// error says that the case could not be played.
func (c trial) run(t testing.TB, program string) (wrong []string, err error) {
	t.Helper()
	s := newShop(t, program)
	bystander := s.start(s.direct(), "serve")
	s.lead(c.flow)

	b := &border{}
	a := newAmbush(c.n, "", c.moment, c.fault)
	defer a.wake()
	victim := s.begin(c.flow.by, b, a)
	select {
	case <-a.struck:
	case heard := <-victim.done:
		if !a.hasStruck() {
			return nil, fmt.Errorf("%w, and the end was: %v", errNotReached, heard)
		}
		victim.done <- heard // both happened
	case <-time.After(patience):
		return nil, errNotReached
	}

	helper := bystander.address()
	if c.fault == pause {
		wrong = append(wrong, s.resume(c.recovery, helper)...)
		wrong = append(wrong, s.wake(a, victim)...)
	} else {
		heard := s.hear(victim)
		if c.fault != kill && !victim.allowed(heard) {
			wrong = append(wrong, fmt.Sprintf("after the %s: %v", c.fault, heard))
		}
		b.heal()
		if c.fault != kill && victim.base != "" {
			helper = victim.base // which must recover, too
		}
		wrong = append(wrong, s.resume(c.recovery, helper)...)
	}
	wrong = append(wrong, s.lastWord(c.flow.status, bystander.address())...)
	return append(wrong, s.violations()...), nil
}

// hear waits for what the victim's client is told, and notes it.
func (s *shop) hear(victim *run) answer {
	s.t.Helper()
	select {
	case heard := <-victim.done:
		s.answers = append(s.answers, heard)
		return heard
	case <-time.After(2 * patience):
		require.Fail(s.t, "the victim does not end")
		return answer{}
	}
}

// resume lets somebody go on with what the victim left behind, at the API of
// that address or with a command.
func (s *shop) resume(by actor, base string) (wrong []string) {
	s.t.Helper()
	if by == retry {
		_, wrong = s.insist(base)
		return wrong
	}
	if !s.settle() {
		wrong = append(wrong, "a session stays inside its transaction (R21)")
	}
	s.expire()
	switch by {
	case completer:
		if end := exit(s.start(s.direct(), "completer")); end.exitCode != 0 {
			wrong = append(wrong, fmt.Sprintf("the completer: %v", end))
		}
	case webhook:
		if a := s.event().send(base); a.status != http.StatusOK {
			wrong = append(wrong, fmt.Sprintf("the webhook: %v", a))
		}
	}
	for _, key := range s.unfinished() {
		wrong = append(wrong, fmt.Sprintf("unfinished after the %s: %s", by, key))
	}
	return wrong
}

// wake lets a paused victim go on, as a zombie if its key is finished by now:
// then it may not write anything, however late what it sent arrives.
func (s *shop) wake(a *ambush, victim *run) (wrong []string) {
	s.t.Helper()
	overtaken := s.query("SELECT id::text FROM idempotency_keys WHERE recovery_point = 'finished' AND idempotency_key = $1", theKey) != nil
	since := s.everything()
	a.wake()
	if heard := s.hear(victim); !victim.allowed(heard) {
		wrong = append(wrong, fmt.Sprintf("the zombie: %v", heard))
	}
	if now := s.everything(); overtaken && !slices.Equal(since, now) {
		wrong = append(wrong, fmt.Sprintf("the zombie wrote:\n%s\nbecame\n%s", strings.Join(since, "\n"), strings.Join(now, "\n")))
	}
	return wrong
}

// insist is a client that follows the rules: the same request again for as long
// as it is told to come back. Leases run out meanwhile.
func (s *shop) insist(base string) (last answer, wrong []string) {
	s.t.Helper()
	s.eventually(func() bool {
		last = s.order(base, s.ann, s.request)
		if last.later() {
			s.expire()
		}
		return !last.later()
	})
	if !last.isFinal() {
		wrong = append(wrong, fmt.Sprintf("a retry ends with %v", last))
	}
	return last, wrong
}

// lastWord is what clients hear when all is over.
func (s *shop) lastWord(status int, base string) []string {
	s.t.Helper()
	last, wrong := s.insist(base)
	expect := func(what string, a answer, ok bool) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%s: %v", what, a))
		}
	}
	expect("the last word", last, last.status == status)
	again := s.order(base, s.ann, s.request)
	expect("a replay", again, again.replayed && again.status == last.status && again.body == last.body && again.location == last.location)
	other := s.order(base, s.ann, params(s.ann.email, mastercard))
	expect("the key with another request", other, other.status == http.StatusUnprocessableEntity && strings.Contains(other.body, "/problems/idempotency-key-reused"))
	next := s.order(base, s.bob, params(s.bob.email, visa))
	expect("the next order, under the same key of somebody else", next, next.status == http.StatusCreated)
	for _, id := range s.query("SELECT id::text FROM orders WHERE account_id = $1", s.ann.id) {
		own := s.get(base, s.ann, "/v1/orders/"+id)
		expect("the order", own, own.status == http.StatusOK)
		foreign := s.get(base, s.bob, "/v1/orders/"+id)
		expect("the order, for somebody else", foreign, foreign.status == http.StatusNotFound)
	}
	return wrong
}
