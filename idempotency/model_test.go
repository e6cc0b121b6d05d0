package idempotency_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// One key, used in any order by requests that are equal or not, with calls that
// answer, fail or outlive their lease: the engine agrees with a model of a few
// lines.
func TestModel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rapid.Check(t, func(t *rapid.T) {
		m := &model{b: b, req: b.request(), effects: map[string]int{}}
		defer m.end()
		t.Repeat(map[string]func(*rapid.T){
			"":              m.check,
			"request":       m.request,
			"other request": m.otherRequest,
			"lease is over": m.leaseIsOver,
			"call answers":  func(t *rapid.T) { m.callReturns(t, nil) },
			"call fails":    func(t *rapid.T) { m.callReturns(t, errNoAnswer) },
		})
	})
}

// model is what should be true of a key.
type model struct {
	b       *bench
	req     idempotency.Request
	point   idempotency.RecoveryPoint // empty when there is no such key
	attempt int
	holder  *modelRun   // the run that holds the key, or nil
	over    bool        // and its lease is over
	calling []*modelRun // runs in a call, some of them zombies
	body    string      // of the stored response
	effects map[string]int
}

// modelRun is a request that is being worked on.
type modelRun struct {
	calls   chan struct{} // it has begun a call
	returns chan error    // what the call shall return
	done    chan error
	result  idempotency.Result
}

// request sends the request, and waits until it is answered or calls.
func (m *model) request(t *rapid.T) {
	run := &modelRun{calls: make(chan struct{}), returns: make(chan error), done: make(chan error)}
	call := func(context.Context, *idempotency.Run) error {
		run.calls <- struct{}{}
		return <-run.returns
	}
	go func() {
		var err error
		run.result, err = m.b.do(m.req, &threeSteps{reserve: call, pay: call})
		run.done <- err
	}()
	switch {
	case m.point == idempotency.Finished:
		require.NoError(t, <-run.done)
		require.True(t, run.result.Replayed)
		require.Equal(t, m.body, string(run.result.Response.Body))
	case m.holder != nil && !m.over:
		require.ErrorIs(t, <-run.done, idempotency.ErrInProgress)
	default:
		<-run.calls
		m.holder, m.over = run, false
		m.calling = append(m.calling, run)
		m.attempt++
		if m.point == "" {
			m.point = reserved
			m.effects["created"]++
		}
	}
}

func (m *model) otherRequest(t *rapid.T) {
	if m.point == "" {
		return // no such key
	}
	other := m.req
	other.Params = []byte(`{"amount":1300}`)
	_, err := m.b.do(other, &threeSteps{})
	require.ErrorIs(t, err, idempotency.ErrKeyReused)
}

func (m *model) leaseIsOver(*rapid.T) {
	if m.holder == nil {
		return // nobody holds the key
	}
	idempotencytest.AgeLease(m.b.t, m.b.pool, m.req.AccountID, idempotency.KeyID(m.req.AccountID, m.req.Key), 2*lockTimeout)
	m.over = true
}

// callReturns lets one of the calls return, and waits until its run is answered
// or calls again.
func (m *model) callReturns(t *rapid.T, err error) {
	if len(m.calling) == 0 {
		return // nobody calls
	}
	run := rapid.SampledFrom(m.calling).Draw(t, "run")
	run.returns <- err
	switch {
	case err != nil:
		require.Equal(t, err, <-run.done)
		if run == m.holder {
			m.holder = nil
		}
	case run != m.holder:
		require.ErrorIs(t, <-run.done, idempotency.ErrInProgress)
	case m.point == reserved:
		<-run.calls
		m.point, m.over = paid, false
		m.effects["reserved"]++
		return
	default:
		require.NoError(t, <-run.done)
		require.False(t, run.result.Replayed)
		require.Equal(t, m.attempt, run.result.Attempt)
		m.point, m.holder, m.body = idempotency.Finished, nil, string(run.result.Response.Body)
		m.effects["paid"]++
	}
	m.calling = slices.DeleteFunc(m.calling, func(r *modelRun) bool { return r == run })
}

// check compares the model with the database.
func (m *model) check(t *rapid.T) {
	require.True(t, maps.Equal(m.effects, m.b.effects(m.req)))
	if m.point == "" {
		require.Empty(t, m.b.row(m.req))
		return
	}
	state := m.b.state(m.req)
	require.Equal(t, string(m.point), state.Point)
	require.Equal(t, m.holder != nil, state.Leased)
	require.Equal(t, m.attempt, state.Attempt)
}

// end lets every call fail.
func (m *model) end() {
	for _, run := range m.calling {
		run.returns <- errors.New("the test is over")
		require.Error(m.b.t, <-run.done)
	}
}
