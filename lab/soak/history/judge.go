package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sync/errgroup"
)

// Verdict is the result of a judgement.
type Verdict struct {
	Operations int // requests and reads
	Keys       int
	Lost       []Key // that only a failover explains
	Rejected   []Key
	Undecided  int // of the rejected keys
	Duration   time.Duration
}

// Key is a key and its operations in the order of their calls.
type Key struct {
	Account int
	Name    string
	History []Operation
}

func (k Key) String() string { return fmt.Sprintf("account %d, key %s", k.Account, k.Name) }

// Operations returns a line for each operation, after a line break.
func (k Key) Operations() string {
	var text strings.Builder
	for _, op := range k.History {
		fmt.Fprintf(&text, "\n  %s", op)
	}
	return text.String()
}

// String returns a summary.
func (v Verdict) String() string {
	text := fmt.Sprintf("%d operations of %d keys in %s: %d keys not linearizable, %d only because of a failover",
		v.Operations, v.Keys, v.Duration.Round(time.Millisecond), len(v.Rejected), len(v.Lost))
	if v.Undecided > 0 {
		text += fmt.Sprintf("; %d were not decided in %s", v.Undecided, patience)
	}
	return text
}

// String returns the times in seconds, and what was sent and received.
func (op Operation) String() string {
	text := fmt.Sprintf("%.3f to %.3f: %s", op.Call.Seconds(), op.Return.Seconds(), op.Kind)
	if op.Return == 0 {
		text = fmt.Sprintf("%.3f: %s, no response", op.Call.Seconds(), op.Kind)
	}
	for _, value := range []any{op.Request, op.Status, op.State, op.Response.Status, op.Response.Type, op.Response.Location, op.Response.Body} {
		if value != "" && value != 0 {
			text += fmt.Sprint(" ", value)
		}
	}
	return text
}

// Judge judges the history that a [Recorder] has written to a file.
func Judge(path string) (Verdict, error) {
	file, err := os.Open(path) //nolint:gosec // chosen by the user
	if err != nil {
		return Verdict{}, err
	}
	defer func() { _ = file.Close() }()
	var history []Operation
	lines := json.NewDecoder(bufio.NewReader(file))
	for {
		var op Operation
		if err := lines.Decode(&op); errors.Is(err, io.EOF) {
			return judge(history), nil
		} else if err != nil {
			return Verdict{}, fmt.Errorf("%s: %w", path, err)
		}
		history = append(history, op)
	}
}

func judge(history []Operation) Verdict {
	start := time.Now()
	type name struct {
		account int
		key     string
	}
	var failovers []Operation
	operations := map[name][]Operation{}
	v := Verdict{}
	for _, op := range history {
		if op.Kind == Failover {
			failovers = append(failovers, op)
			continue
		}
		operations[name{op.Account, op.Key}] = append(operations[name{op.Account, op.Key}], op)
		if op.Kind == Post || op.Kind == Read {
			v.Operations++
		}
	}
	v.Keys = len(operations)

	const (
		accepted = iota
		lost
		rejected
		undecided
	)
	keys := make([]Key, 0, len(operations))
	for n, ops := range operations {
		keys = append(keys, Key{n.account, n.key, ops})
	}
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Account, b.Account)) })
	results := make([]int, len(keys))
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for i, key := range keys {
		all.Go(func() error {
			slices.SortFunc(key.History, func(a, b Operation) int { return cmp.Compare(a.Call, b.Call) })
			result := check(withoutLoss(key.History))
			if result != porcupine.Ok && len(failovers) > 0 {
				result = check(withLoss(key.History, failovers))
				results[i] = lost
			}
			switch result {
			case porcupine.Illegal:
				results[i] = rejected
			case porcupine.Unknown:
				results[i] = undecided
			}
			return nil
		})
	}
	_ = all.Wait() // no function fails
	for i, key := range keys {
		switch results[i] {
		case lost:
			v.Lost = append(v.Lost, key)
		case undecided:
			v.Undecided++
			fallthrough
		case rejected:
			v.Rejected = append(v.Rejected, key)
		}
	}
	v.Duration = time.Since(start)
	return v
}

// withoutLoss leaves out what an operator does after a failover.
func withoutLoss(history []Operation) []Operation {
	return slices.DeleteFunc(effective(history, 1), func(op Operation) bool { return op.Kind == Expire })
}

// withLoss adds the failovers. After each of them, a request may claim the key once more.
func withLoss(history, failovers []Operation) []Operation {
	history = effective(history, 1+len(failovers))
	for _, f := range failovers {
		history = append(history, Operation{Kind: boundary, Call: f.Call, Return: f.Call}, f)
		history[len(history)-1].Call++ // after the boundary
	}
	return history
}

// effective leaves only the first of equal requests of unknown outcome, as many as can claim the key. The
// others can do no more than these, because each can take effect at any later time. Otherwise Porcupine
// would try all their orders, and would not end after a client has repeated its request for a minute.
func effective(history []Operation, claims int) []Operation {
	unanswered := map[string]int{}
	return slices.DeleteFunc(slices.Clone(history), func(op Operation) bool {
		if op.Kind != Post || !op.unknown() {
			return false
		}
		unanswered[op.Request]++
		return unanswered[op.Request] > claims
	})
}

// patience bounds the search of one key. A key that is undecided then is rejected, and the verdict says so.
const patience = 30 * time.Second

func check(history []Operation) porcupine.CheckResult {
	var operations []porcupine.Operation
	add := func(kind Kind, op Operation, end time.Duration) {
		op.Kind = kind
		operations = append(operations, porcupine.Operation{Input: op, Call: int64(op.Call), Return: int64(end)})
	}
	for _, op := range history {
		switch {
		case op.Kind == Post && op.unknown():
			add(send, op, math.MaxInt64) // it may still take effect
		case op.Kind == Post && (op.Status == 202 || op.isFinal()):
			add(send, op, op.Return)
			add(op.Kind, op, op.Return)
		case op.Kind == Read && op.unknown(), op.Status == 429: // it shows nothing and does nothing
		default:
			add(op.Kind, op, op.Return)
		}
	}
	return porcupine.CheckOperationsTimeout(model, operations, patience)
}
