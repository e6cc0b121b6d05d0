package accounts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"

	"example.com/orders-api/internal/postgres"
)

// batches looks up API keys, one batch at a time. Keys that arrive during a lookup share the next
// one, so a key waits for at most two lookups. A batch has no limit: looking up a key costs less than
// the request did, and many small batches would take as long as a large one.
type batches struct {
	lookUp func([]keyHash) (map[keyHash]uuid.UUID, error)

	running sync.Mutex // held during a lookup
	mu      sync.Mutex
	next    *batch // nil if no key waits for the next lookup
}

type batch struct {
	hashes map[keyHash]struct{}
	done   chan struct{} // closed when the result is set

	found map[keyHash]uuid.UUID
	err   error
}

func (b *batches) find(ctx context.Context, hash keyHash) (uuid.UUID, error) {
	own := b.join(hash)
	select {
	case <-own.done:
	case <-ctx.Done():
		return uuid.Nil, fmt.Errorf("wait to look up API key: %w", postgres.Translate(ctx.Err()))
	}
	accountID, exists := own.found[hash]
	switch {
	case own.err != nil:
		return uuid.Nil, own.err
	case !exists:
		return uuid.Nil, ErrUnauthorized
	}
	return accountID, nil
}

func (b *batches) join(hash keyHash) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = &batch{hashes: map[keyHash]struct{}{}, done: make(chan struct{})}
		go b.run(b.next)
	}
	b.next.hashes[hash] = struct{}{}
	return b.next
}

// run looks up a batch after the one before it.
func (b *batches) run(next *batch) {
	b.running.Lock()
	defer b.running.Unlock()
	b.mu.Lock()
	b.next = nil
	b.mu.Unlock()
	next.found, next.err = b.lookUp(slices.Collect(maps.Keys(next.hashes)))
	close(next.done)
}
