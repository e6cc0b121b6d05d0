package idempotency_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

// door is a gate, and whose test it is.
type door struct {
	t testing.TB
	*idempotency.Gate
}

func newDoor(t testing.TB, places, runs int) *door {
	t.Helper()
	gate, err := idempotency.NewGate(places, runs)
	require.NoError(t, err)
	return &door{t, gate}
}

// fill lets an account in until it is turned away, and says with what.
func (d *door) fill(account uuid.UUID) ([]*idempotency.Place, error) {
	d.t.Helper()
	var places []*idempotency.Place
	for len(places) < 10_000 {
		place, err := d.Enter(account)
		if err != nil {
			return places, err
		}
		places = append(places, place)
	}
	require.Fail(d.t, "there is no bound")
	return nil, nil
}

func (d *door) enter(account uuid.UUID) *idempotency.Place {
	d.t.Helper()
	place, err := d.Enter(account)
	require.NoError(d.t, err)
	return place
}

func leave(places []*idempotency.Place) {
	for _, place := range places {
		place.Leave()
	}
}

func TestGate_oneAccountAloneGetsNearlyAll(t *testing.T) {
	t.Parallel()
	for places, alone := range map[int]int{1: 1, 2: 2, 4: 4, 5: 4, 10: 8, 80: 64} {
		gate := newDoor(t, places, places)
		got, err := gate.fill(uuid.New())
		require.Len(t, got, alone, "of %d", places)
		require.ErrorIs(t, err, idempotency.ErrOverloaded, "there is nobody else whose share it could take")
		leave(got)
	}
}

func TestGate_aGreedyAccountLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	gate := newDoor(t, 80, 80)
	greedy, other := uuid.New(), uuid.New()
	taken, err := gate.fill(greedy)
	require.ErrorIs(t, err, idempotency.ErrOverloaded)
	gate.enter(other)
	_, err = gate.Enter(greedy)
	require.ErrorIs(t, err, idempotency.ErrShareTaken)
	for range 10 {
		gate.enter(uuid.New()) // new ones get in all the same
	}
	leave(taken)
	taken, err = gate.fill(greedy)
	require.ErrorIs(t, err, idempotency.ErrShareTaken)
	require.Less(t, len(taken), 64, "the others' places are taken")
}

func TestGate_twoGreedyAccountsGetTheSame(t *testing.T) {
	t.Parallel()
	gate := newDoor(t, 90, 90)
	one, two := uuid.New(), uuid.New()
	for range 40 {
		gate.enter(one)
		gate.enter(two)
	}
	for _, account := range []uuid.UUID{one, two} {
		_, err := gate.Enter(account)
		require.ErrorIs(t, err, idempotency.ErrShareTaken)
	}
	gate.enter(uuid.New())
}

// A burst may fill all places. If that was not enough, a quarter is open until the
// queue is gone.
func TestGate_aStandingQueue(t *testing.T) {
	t.Parallel()
	gate := newDoor(t, 80, 80)
	account := uuid.New()
	taken, err := gate.fill(account)
	require.ErrorIs(t, err, idempotency.ErrOverloaded)
	require.Len(t, taken, 64)

	leave(taken[16:])
	_, err = gate.Enter(account)
	require.ErrorIs(t, err, idempotency.ErrOverloaded, "alone it gets four fifths of twenty")
	taken[0].Leave()
	taken[0] = gate.enter(account)
	_, err = gate.Enter(account)
	require.ErrorIs(t, err, idempotency.ErrOverloaded)
	small := uuid.New() // is not the one who is too many
	var few []*idempotency.Place
	for range 5 {
		few = append(few, gate.enter(small))
	}
	_, err = gate.Enter(small)
	require.ErrorIs(t, err, idempotency.ErrShareTaken)
	leave(few)

	leave(taken[6:16])
	more, _ := gate.fill(account)
	require.Len(t, more, 10, "six are left, so it stands still")
	leave(more)
	taken[5].Leave()
	more, _ = gate.fill(account)
	require.Len(t, more, 64-5, "it is gone")
}

// Hundreds wait for the provider. They count again when they come back, and come
// back whatever there is to do.
func TestGate_whoStepsAsideFreesThePlace(t *testing.T) {
	t.Parallel()
	gate := newDoor(t, 4, 50)
	account := uuid.New()
	var aside []*idempotency.Place
	for len(aside) < 40 {
		place := gate.enter(account)
		place.StepAside()
		aside = append(aside, place)
	}
	_, err := gate.Enter(account)
	require.ErrorIs(t, err, idempotency.ErrOverloaded, "forty of fifty, and nobody else is there")
	other := gate.enter(uuid.New())
	other.StepAside()
	_, err = gate.Enter(account)
	require.ErrorIs(t, err, idempotency.ErrShareTaken)

	for _, place := range aside {
		place.ComeBack()
	}
	_, err = gate.Enter(uuid.New())
	require.ErrorIs(t, err, idempotency.ErrOverloaded, "what has begun goes before what is new")
	leave(aside)
	gate.enter(account)
}

func TestGate_aPlaceIsGivenUpOnce(t *testing.T) {
	t.Parallel()
	gate := newDoor(t, 1, 1)
	account := uuid.New()
	first := gate.enter(account)
	first.Leave()
	second := gate.enter(account)
	first.Leave()
	first.StepAside()
	_, err := gate.Enter(account)
	require.ErrorIs(t, err, idempotency.ErrOverloaded)
	second.Leave()
	gate.enter(account)
}

func TestGate_none(t *testing.T) {
	t.Parallel()
	var gate *idempotency.Gate
	place, err := gate.Enter(uuid.New())
	require.NoError(t, err)
	place.StepAside()
	place.ComeBack()
	place.Leave()
}

func TestNewGate(t *testing.T) {
	t.Parallel()
	for _, numbers := range [][2]int{{0, 0}, {-1, 5}, {2, 1}} {
		_, err := idempotency.NewGate(numbers[0], numbers[1])
		require.Error(t, err)
	}
}

func TestGate_saysHowFullItIs(t *testing.T) {
	t.Parallel()
	gate := newDoor(t, 2, 5)
	require.Equal(t, idempotency.GateStats{Places: 2, Runs: 5}, gate.Stats())
	first, second := gate.enter(uuid.New()), gate.enter(uuid.New())
	first.StepAside()
	require.Equal(t, idempotency.GateStats{Places: 2, Runs: 5, AtWork: 1, UnderWay: 2}, gate.Stats())
	first.ComeBack()
	_, err := gate.Enter(uuid.New())
	require.Error(t, err)
	require.Equal(t, idempotency.GateStats{Places: 2, Runs: 5, AtWork: 2, UnderWay: 2, TurnedAway: 1}, gate.Stats())
	first.Leave()
	second.Leave()
	require.Equal(t, idempotency.GateStats{Places: 2, Runs: 5, TurnedAway: 1}, gate.Stats())
}
