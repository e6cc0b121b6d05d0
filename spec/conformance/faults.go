package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// mostFaultRounds limits the rounds of a fault, because a pause lasts longer than takeover.
const mostFaultRounds = 4

// faultMoments returns random moments of the slow request, one of each part of it, so that
// every call that it makes is interrupted in some round.
func (s *suite) faultMoments(stream uint64) []time.Duration {
	random := rand.New(rand.NewPCG(s.seed, stream)) //nolint:gosec // a run must be repeatable
	lasts := 100 * time.Millisecond
	if s.p.Slow != nil {
		lasts = s.p.Slow.Lasts
	}
	rounds := min(s.p.Crashes, mostFaultRounds)
	if s.quick {
		rounds = 1
	}
	moments := make([]time.Duration, rounds)
	for i := range moments {
		part := lasts / time.Duration(rounds)
		moments[i] = time.Duration(i)*part + time.Duration(random.Int64N(int64(part)))
	}
	return moments
}

// addresses are those of the service.
func (s *suite) addresses() []string { return append([]string{s.p.URL}, s.p.URLs...) }

// inBackground sends requests at the same time and returns their responses later.
func (s *suite) inBackground(ctx context.Context, requests []request) <-chan []*exchange {
	sent := make(chan []*exchange, 1)
	go func() { sent <- s.together(ctx, requests) }()
	return sent
}

// pauses stops the server for longer than it takes until another request takes the key
// over, and lets it continue. Then two runs of one key exist at the same time.
func (s *suite) pauses(ctx context.Context) error {
	if s.hooks.pause == nil {
		return notChecked("commands.pause and commands.resume are missing")
	}
	moments := s.faultMoments(2)
	for _, after := range moments {
		if err := s.pauseOnce(ctx, after); err != nil {
			return err
		}
	}
	s.covers("%s of %s", plural(len(moments), "pause"), s.pauseTime())
	return nil
}

func (s *suite) pauseTime() time.Duration { return s.p.takeover() + 5*s.poll }

func (s *suite) pauseOnce(ctx context.Context, after time.Duration) error {
	if _, err := s.account(ctx); err != nil {
		return err
	}
	r := request{keys: []string{newKey()}, body: s.slowBody()}
	sent := s.inBackground(ctx, []request{r})
	pause(ctx, after)
	if err := s.fault(ctx, "pause", s.hooks.pause, ""); err != nil {
		return err
	}
	pause(ctx, s.pauseTime())
	// Another address takes the key over now. Otherwise the duplicates wait for the paused
	// server, and meet the first request when it continues.
	duplicates := []request{r, r, r}
	for i := range duplicates {
		if len(s.p.URLs) > 0 {
			duplicates[i].address = s.p.URLs[i%len(s.p.URLs)]
		}
	}
	repeated := s.inBackground(ctx, duplicates)
	pause(ctx, s.slowest())
	if err := s.fault(context.WithoutCancel(ctx), "resume", s.hooks.resume, ""); err != nil {
		return err
	}
	responses := slices.Concat(<-sent, <-repeated)
	return s.agree(ctx, fmt.Sprintf("paused after %s", after), r, responses)
}

// slowest is how long a request is in progress, with some reserve.
func (s *suite) slowest() time.Duration {
	if s.p.Slow != nil {
		return s.p.Slow.Lasts * 3 / 2
	}
	return 5 * s.poll
}

// agree requires that the request gets its final response, that all successes are the same,
// and that it was executed once.
func (s *suite) agree(ctx context.Context, what string, r request, responses []*exchange) error {
	final, err := s.settled(ctx, r)
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	var differ error
	for _, e := range responses {
		if final != nil && e.success(s) && e.id(s) != final.id(s) {
			differ = fails(shown(e, final), "%s: two responses", what)
		}
	}
	return all(err, differ, s.executed(ctx, 1, append(responses, final)...))
}

// storeKills kills the store while requests are in progress. Meanwhile the server may
// reject requests, but not for good, and it must not execute what it cannot remember.
func (s *suite) storeKills(ctx context.Context) error {
	if s.hooks.killStore == nil {
		return notChecked("commands.kill_store and commands.start_store are missing")
	}
	moments := s.faultMoments(3)
	for _, after := range moments {
		if err := s.storeKillOnce(ctx, after); err != nil {
			return err
		}
	}
	s.covers("%s of the store", plural(len(moments), "kill"))
	return nil
}

func (s *suite) storeKillOnce(ctx context.Context, after time.Duration) error {
	if _, err := s.account(ctx); err != nil {
		return err
	}
	finished := request{keys: []string{newKey()}, body: s.p.Operation.Body}
	first, err := s.settled(ctx, finished)
	if err != nil {
		return err
	}
	interrupted := request{keys: []string{newKey()}, body: s.slowBody()}
	fresh := request{keys: []string{newKey()}, body: s.p.Operation.Body}
	sent := s.inBackground(ctx, []request{interrupted})
	pause(ctx, after)
	if err := s.fault(ctx, "kill_store", s.hooks.killStore, ""); err != nil {
		return err
	}
	during := s.together(ctx, []request{finished, interrupted, fresh})
	during = append(during, <-sent...)
	if err := s.fault(context.WithoutCancel(ctx), "start_store", s.hooks.startStore, ""); err != nil {
		return err
	}
	var rejected error
	for _, e := range during {
		if e.rejected() && !e.temporary() {
			message := fmt.Sprintf("a valid request got a final %d while the store was down", e.status)
			s.violates(safety, failedYetDone, message, e)
			rejected = fails(shown(e), "%s", message)
		}
	}
	errs := []error{rejected}
	for _, r := range []request{finished, interrupted, fresh} {
		final, err := s.settle(ctx, r, s.p.Patience+s.p.takeover())
		if err == nil && !final.success(s) {
			err = fails(shown(final), "%s instead of %d", final.outcome(), s.p.Operation.Status)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the store was killed after %s: %w", after, err))
		}
		during = append(during, final)
	}
	return all(append(errs, s.executed(ctx, 3, append(during, first)...))...)
}

// replicas sends the duplicates of one request to all addresses of the service.
func (s *suite) replicas(ctx context.Context) error {
	if len(s.p.URLs) == 0 {
		return notChecked("urls is missing")
	}
	addresses := s.addresses()
	for range races {
		if _, err := s.account(ctx); err != nil {
			return err
		}
		key := newKey()
		requests := make([]request, contestants)
		for i := range requests {
			requests[i] = request{keys: []string{key}, body: s.slowBody(), address: addresses[i%len(addresses)]}
		}
		responses := s.together(ctx, requests)
		// Each address must have the response now.
		for _, r := range requests[:len(addresses)] {
			e, err := s.settled(ctx, r)
			if err != nil {
				return fmt.Errorf("at %s: %w", r.address, err)
			}
			responses = append(responses, e)
		}
		if err := s.agree(ctx, fmt.Sprintf("%d addresses", len(addresses)), requests[0], responses); err != nil {
			return err
		}
	}
	s.covers("%d races at %d addresses", races, len(addresses))
	return nil
}

// overlapping sends duplicates at moments that cover the time for which a slow request is in
// progress, because its lock may end before it does.
func (s *suite) overlapping(ctx context.Context) error {
	if s.p.Slow == nil {
		return notChecked("slow is missing")
	}
	if _, err := s.account(ctx); err != nil {
		return err
	}
	r := request{keys: []string{newKey()}, body: s.p.Slow.Body}
	sent := make(chan *exchange, contestants)
	for i := range contestants {
		go func() {
			pause(ctx, s.p.Slow.Lasts*time.Duration(i)/contestants)
			sent <- s.send(ctx, r)
		}()
	}
	var first *exchange
	var differ, unfinished error
	for range contestants {
		e := <-sent
		switch {
		case !e.success(s):
		case first == nil:
			first = e
		case e.id(s) != first.id(s):
			differ = fails(shown(first, e), "two of %d duplicates of a slow request were executed", contestants)
		}
	}
	if first == nil {
		first, unfinished = s.settled(ctx, r)
	}
	s.covers("%d duplicates of a slow request", contestants)
	return all(differ, unfinished, s.executed(ctx, 1, first))
}
