package engine_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/idempotency"
)

// Equal and different requests use one key in random order. Calls succeed, fail or
// outlive their lease.
func TestEngine_agreesWithModel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rapid.Check(t, func(t *rapid.T) {
		m := &model{f: f, req: f.request(), effects: map[string]int{}}
		defer m.end()
		t.Repeat(map[string]func(*rapid.T){
			"":              m.check,
			"request":       m.request,
			"other request": m.otherRequest,
			"lease expires": m.leaseExpires,
			"call succeeds": func(t *rapid.T) { m.callReturns(t, nil) },
			"call fails":    func(t *rapid.T) { m.callReturns(t, errNoResponse) },
		})
	})
}

type model struct {
	f       *fixture
	req     idempotency.Request
	point   idempotency.RecoveryPoint // empty when there is no such key
	attempt int
	holder  *modelRun   // the run that holds the key, or nil
	expired bool        // its lease has expired
	calling []*modelRun // runs in a call, paused ones included
	body    string      // of the stored response
	effects map[string]int
}

type modelRun struct {
	calls   chan struct{} // sent to when a call begins
	returns chan error    // the result of the call
	done    chan error
	result  idempotency.Result
}

func (m *model) request(t *rapid.T) {
	run := &modelRun{calls: make(chan struct{}), returns: make(chan error), done: make(chan error)}
	call := func(context.Context) error {
		run.calls <- struct{}{}
		return <-run.returns
	}
	go func() {
		var err error
		run.result, err = m.f.do(m.req, &threeSteps{reserve: call, pay: call})
		run.done <- err
	}()
	switch {
	case m.point == idempotency.Finished:
		require.NoError(t, <-run.done)
		require.True(t, run.result.Replayed)
		require.Equal(t, m.body, string(run.result.Response.Body))
	case m.holder != nil && !m.expired:
		require.ErrorIs(t, <-run.done, idempotency.ErrInProgress)
	default:
		<-run.calls
		m.holder, m.expired = run, false
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
	_, err := m.f.do(other, &threeSteps{})
	require.ErrorIs(t, err, idempotency.ErrKeyReused)
}

func (m *model) leaseExpires(*rapid.T) {
	if m.holder == nil {
		return // no run holds the key
	}
	m.f.expireLease(m.req)
	m.expired = true
}

// callReturns ends a call and waits for the result of its run or for its next call.
func (m *model) callReturns(t *rapid.T, err error) {
	if len(m.calling) == 0 {
		return // no run is in a call
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
		m.point, m.expired = paid, false
		m.effects["reserved"]++
		return
	default:
		require.NoError(t, <-run.done)
		require.False(t, run.result.Replayed)
		require.Equal(t, m.attempt, run.result.Runs)
		m.point, m.holder, m.body = idempotency.Finished, nil, string(run.result.Response.Body)
		m.effects["paid"]++
	}
	m.calling = slices.DeleteFunc(m.calling, func(r *modelRun) bool { return r == run })
}

func (m *model) check(t *rapid.T) {
	require.True(t, maps.Equal(m.effects, m.f.effects(m.req)))
	if m.point == "" {
		require.Empty(t, m.f.row(m.req))
		return
	}
	state := m.f.state(m.req)
	require.Equal(t, string(m.point), state.Point)
	require.Equal(t, m.holder != nil, state.Leased)
	require.Equal(t, m.attempt, state.Runs)
}

func (m *model) end() {
	for _, run := range m.calling {
		run.returns <- errors.New("the test is over")
		require.Error(m.f.t, <-run.done)
	}
}
