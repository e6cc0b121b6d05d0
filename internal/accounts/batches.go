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
// one, so a key waits for at most two lookups, however many keys outsiders try. A key of a request
// that has ended stays in its batch, which costs less than the request did.
type batches struct {
	lookUp func([]keyHash) (map[keyHash]uuid.UUID, error)

	mu      sync.Mutex
	running bool
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
	}
	b.next.hashes[hash] = struct{}{}
	if !b.running {
		b.running = true
		go b.run()
	}
	return b.next
}

func (b *batches) run() {
	for next := b.take(); next != nil; next = b.take() {
		next.found, next.err = b.lookUp(slices.Collect(maps.Keys(next.hashes)))
		close(next.done)
	}
}

func (b *batches) take() *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.next
	b.next, b.running = nil, next != nil
	return next
}
