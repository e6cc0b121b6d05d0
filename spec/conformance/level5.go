package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"time"
)

// hook is a command of the operator. The key is that of the request, or "".
type hook func(ctx context.Context, key string) error

type hooks struct {
	kill, start, interrupt, restore, expire hook
	pause, resume, killStore, startStore    hook
}

// commandHooks runs commands in a shell. Their output goes to log.
func commandHooks(c commands, log io.Writer) hooks {
	command := func(name, text string) hook {
		if text == "" {
			return nil
		}
		return func(ctx context.Context, key string) error {
			cmd := exec.CommandContext(ctx, "sh", "-c", text) //nolint:gosec // the profile's commands are run on purpose
			cmd.Env = append(os.Environ(), "IDEMPOTENCY_KEY="+key)
			cmd.Stdout, cmd.Stderr = log, log
			cmd.WaitDelay = time.Second // a started server keeps the output open
			if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 0 {
				return fmt.Errorf("commands.%s: %w", name, err)
			}
			return nil
		}
	}
	return hooks{
		kill: command("kill", c.Kill), start: command("start", c.Start),
		interrupt: command("interrupt", c.Interrupt), restore: command("restore", c.Restore),
		expire: command("expire", c.Expire),
		pause:  command("pause", c.Pause), resume: command("resume", c.Resume),
		killStore: command("kill_store", c.KillStore), startStore: command("start_store", c.StartStore),
	}
}

// restart starts the server and waits until it responds.
func (s *suite) restart(ctx context.Context) error {
	// An interrupted check leaves the system as it was.
	if err := s.fault(context.WithoutCancel(ctx), "start", s.hooks.start, ""); err != nil {
		return err
	}
	if err := s.responds(ctx, s.p.URL, max(s.p.Patience, time.Minute)); err != nil { // a start may take longer than a response
		return fmt.Errorf("after commands.start: %w", err)
	}
	return nil
}

// crashResult is the result of all crashes.
type crashResult struct {
	continued error // IR-17
	blocked   error // IR-33
	covered   string
}

const crashing = 4 // requests in progress at a crash

// crashes kills and restarts the server at random moments.
func (s *suite) crashes(ctx context.Context) *crashResult {
	if s.crash != nil {
		return s.crash
	}
	if s.hooks.kill == nil {
		reason := notChecked("commands.kill and commands.start are missing")
		s.crash = &crashResult{continued: reason, blocked: reason}
		return s.crash
	}
	n := s.p.Crashes
	if s.quick {
		n = 1
	}
	s.progress(fmt.Sprintf("IR-17  kills the server up to %d times, until a violation shows (seed %d)", n, s.seed))
	random := rand.New(rand.NewPCG(s.seed, 1)) //nolint:gosec // a run must be repeatable
	step := 100 * time.Millisecond / crashing
	if s.p.Slow != nil {
		step = s.p.Slow.Lasts * 3 / 2 / crashing
	}
	s.crash = &crashResult{}
	for i := range n {
		s.crash.covered = plural(i+1, "crash")
		result := s.crashOnce(ctx, step, time.Duration(random.Int64N(int64(step))))
		s.crash.continued = all(s.crash.continued, result.continued)
		s.crash.blocked = all(s.crash.blocked, result.blocked)
		if result.blocked != nil || s.violated() {
			break
		}
	}
	return s.crash
}

// violated reports whether this clause has shown a violation already.
func (s *suite) violated() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.ledger.seen, func(one sighting) bool { return one.clause == s.clause })
}

// crashOnce kills the server some time after the last of several requests, which are sent
// with pauses, so that each is in another part of its work. Their responses and those that
// were final before must be found after the restart.
func (s *suite) crashOnce(ctx context.Context, step, after time.Duration) crashResult {
	failed := func(err error) crashResult { return crashResult{continued: err, blocked: err} }
	if _, err := s.account(ctx); err != nil {
		return failed(err)
	}
	finals, err := s.finish(ctx)
	if err != nil {
		return failed(err)
	}
	if s.kept(ctx, finals, "at once") != nil {
		finals = nil // IR-19 reports it
	}
	requests := make([]request, crashing)
	for i := range requests {
		requests[i] = request{keys: []string{newKey()}, body: s.slowBody()}
	}
	sent := s.spread(ctx, requests, step)
	after += (crashing - 1) * step
	pause(ctx, after)
	if err := s.fault(ctx, "kill", s.hooks.kill, ""); err != nil {
		return failed(err)
	}
	if err := s.restart(ctx); err != nil {
		return failed(err)
	}
	started := time.Now()
	interrupted := <-sent
	ends := make(chan crashEnd, crashing)
	for i, r := range requests {
		go func() { ends <- s.afterCrash(ctx, r, interrupted[i], started) }()
	}
	var result crashResult
	errs := []error{s.kept(ctx, finals, "after a restart")}
	exchanges := slices.Clone(interrupted)
	for range requests {
		end := <-ends
		exchanges = append(exchanges, end.first)
		errs = append(errs, end.continued)
		result.blocked = all(result.blocked, end.blocked)
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("killed after %s: %w", after.Round(time.Millisecond), err)
		}
	}
	result.continued = all(append(errs, s.executed(ctx, crashing+1, exchanges...))...)
	return result
}

// crashEnd is what became of one interrupted request.
type crashEnd struct {
	first     *exchange
	continued error
	blocked   error
}

// afterCrash sends a request until it succeeds, and then again.
func (s *suite) afterCrash(ctx context.Context, r request, interrupted *exchange, started time.Time) (end crashEnd) {
	end.first, end.continued = s.resumed(ctx, r, started, &end.blocked)
	if end.continued != nil {
		return end
	}
	again := s.again(ctx, r)
	if !again.same(s, end.first) || interrupted.success(s) && interrupted.id(s) != "" && !end.first.same(s, interrupted) {
		end.continued = fails(shown(interrupted, end.first, again), "two responses")
	}
	return end
}

// resumed sends a request until it succeeds, and measures for how long it gets 409.
func (s *suite) resumed(ctx context.Context, r request, started time.Time, blocked *error) (*exchange, error) {
	allowed := s.p.continued()
	deadline := started.Add(allowed + s.p.Patience)
	for {
		e := s.send(ctx, r)
		switch {
		case e.success(s):
			return e, nil
		case e.status == e.busy && e.sent.Sub(started) > allowed && *blocked == nil:
			*blocked = s.blocks(started.Add(allowed), fmt.Sprintf("the key is blocked for longer than %s after the crash", allowed), e)
		case !e.temporary():
			return e, fails(shown(e), "the same request: %s instead of %d", e.outcome(), s.p.Operation.Status)
		}
		if time.Now().After(deadline) {
			return e, s.blocks(started, "the request is not continued after the crash", e)
		}
		if !pause(ctx, s.poll) {
			return e, ctx.Err()
		}
	}
}

func checkContinued(ctx context.Context, s *suite) error { // IR-17
	crash := s.crashes(ctx)
	if crash.covered != "" {
		s.covers("%s", crash.covered)
	}
	if s.hooks.kill != nil && crash.blocked != nil {
		return crash.continued // each pause and each kill of the store would wait for a blocked key again
	}
	return all(crash.continued, s.pauses(ctx), s.storeKills(ctx))
}

func checkBlocked(ctx context.Context, s *suite) error { // IR-33
	return s.crashes(ctx).blocked
}

// reuseInterrupted is the part of IR-13 for an interrupted request.
func (s *suite) reuseInterrupted(ctx context.Context) error {
	if _, err := s.account(ctx); err != nil {
		return err
	}
	running := s.begin(ctx, "")
	if err := s.fault(ctx, "kill", s.hooks.kill, ""); err != nil {
		return err
	}
	interrupted := <-running.end
	if err := s.restart(ctx); err != nil {
		return err
	}
	stored := s.p.Status != nil && s.state(ctx, running.request.keys[0]).status == http.StatusOK
	var changed *exchange
	if stored { // otherwise the server may have been killed before it stored the key
		s.covers("an interrupted one")
		changed = s.send(ctx, request{keys: running.request.keys, body: s.p.Operation.Changed})
	}
	// The request is finished, so that its effect is not counted later. IR-17 and IR-33
	// report a server that never finishes it.
	for deadline := time.Now().Add(s.p.Patience + s.p.takeover()); time.Now().Before(deadline); {
		if !s.send(ctx, running.request).temporary() || !pause(ctx, s.poll) {
			break
		}
	}
	if !stored {
		return nil
	}
	return s.hasStatus(reused, "an interrupted key with another request", changed, interrupted)
}

// interrupted sends a request while a dependency is interrupted, then again after it is
// restored.
func (s *suite) interrupted(ctx context.Context) (failed, restored *exchange, err error) {
	r := request{keys: []string{newKey()}, body: s.p.Operation.Body}
	if err := s.fault(ctx, "interrupt", s.hooks.interrupt, ""); err != nil {
		return nil, nil, err
	}
	failed = s.send(ctx, r)
	s.send(ctx, r)
	if err := s.fault(context.WithoutCancel(ctx), "restore", s.hooks.restore, ""); err != nil {
		return nil, nil, err
	}
	if !failed.temporary() {
		return failed, failed, nil
	}
	restored, err = s.settle(ctx, r, s.p.Patience+s.p.takeover())
	if err != nil && restored.status >= 500 && restored.status == failed.status {
		err = fails(shown(failed, restored), "%d repeated after restore: it is stored", failed.status)
	}
	return failed, restored, err
}

func checkNotStored(ctx context.Context, s *suite) error { // IR-20
	if s.hooks.interrupt == nil {
		return notChecked("commands.interrupt and commands.restore are missing")
	}
	if _, err := s.account(ctx); err != nil {
		return err
	}
	failed, restored, err := s.interrupted(ctx)
	switch {
	case err != nil:
		return err
	case failed.success(s):
		return notChecked("the request succeeds although the dependency is interrupted")
	case !restored.success(s):
		return fails(shown(failed, restored), "after the interruption, the same request: %s instead of %d", restored.outcome(), s.p.Operation.Status)
	}
	s.covers("one interruption: %s, then a success", failed.outcome())
	return s.executed(ctx, 1, failed, restored)
}

// expiryResult is a request whose key has expired.
type expiryResult struct {
	key          string
	first, after *exchange
}

// expired executes a request, expires its key and sends the request again.
func (s *suite) expired(ctx context.Context) (*expiryResult, error) {
	if s.expiry != nil {
		return s.expiry, nil
	}
	r := &expiryResult{key: newKey()}
	var err error
	if r.first, err = s.execute(ctx, r.key, s.p.Operation.Body); err != nil {
		return nil, err
	}
	if err := s.fault(ctx, "expire", s.hooks.expire, r.key); err != nil {
		return nil, err
	}
	r.after = s.send(ctx, request{keys: []string{r.key}, body: s.p.Operation.Body})
	s.expiry = r
	return r, nil
}

func checkExpiry(ctx context.Context, s *suite) error { // IR-34
	if s.hooks.expire == nil {
		return notChecked("commands.expire is missing")
	}
	if _, err := s.account(ctx); err != nil {
		return err
	}
	s.expiry = nil // a new one, whose effects are counted
	r, err := s.expired(ctx)
	if err != nil {
		return err
	}
	changed := s.send(ctx, request{keys: []string{r.key}, body: s.p.Operation.Changed})
	once := s.executed(ctx, 1, r.first, r.after, changed)
	if r.after.same(s, r.first) {
		return cmp.Or(once, error(notChecked("commands.expire did not expire the key")))
	}
	var named error
	if !contains(r.after, r.first.id(s)) {
		named = &violation{message: "the response does not name what the key created", form: true, exchanges: shown(r.first, r.after)}
	}
	other := reused
	if _, status := s.p.Dialect.status(expired); changed.status == status {
		other = expired
	}
	s.covers("one expired key")
	return all(
		s.hasStatus(expired, "an expired key", r.after, r.first), named,
		s.hasStatus(other, "an expired key with another request", changed, r.first), once,
	)
}

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

// pauses stops the server for longer than it takes until another request takes the key
// over, and lets it continue. Then two runs of one key exist at the same time.
func (s *suite) pauses(ctx context.Context) error {
	if s.hooks.pause == nil {
		return notChecked("commands.pause and commands.resume are missing")
	}
	if s.quick {
		return notChecked("-quick does not pause the server")
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
	sent := s.spread(ctx, []request{r}, 0)
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
	repeated := s.spread(ctx, duplicates, 0)
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
	sent := s.spread(ctx, []request{interrupted}, 0)
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
	var first *exchange
	var differ, unfinished error
	for _, e := range <-s.spread(ctx, slices.Repeat([]request{r}, contestants), s.p.Slow.Lasts/contestants) {
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
