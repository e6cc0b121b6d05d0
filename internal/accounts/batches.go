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

const maxBatch = 1000 // API keys of a lookup

// batches looks up API keys, one batch at a time. Keys that arrive during a lookup share the
// next one, so a key waits for about two lookups.
type batches struct {
	lookUp func([]keyHash) (map[keyHash]uuid.UUID, error)

	mu      sync.Mutex
	running bool
	queue   []*batch // not sent yet; all but the last are full
}

type batch struct {
	waiters map[keyHash]int // number of requests for each key
	done    chan struct{}   // closed when the result is set

	found map[keyHash]uuid.UUID
	err   error
}

func (b *batches) find(ctx context.Context, hash keyHash) (uuid.UUID, error) {
	b.mu.Lock()
	own := b.add(hash)
	if !b.running {
		b.running = true
		go b.run()
	}
	b.mu.Unlock()
	select {
	case <-own.done:
	case <-ctx.Done():
		b.leave(own, hash)
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

func (b *batches) add(hash keyHash) *batch {
	n := len(b.queue)
	if n == 0 || len(b.queue[n-1].waiters) >= maxBatch {
		b.queue = append(b.queue, &batch{waiters: map[keyHash]int{}, done: make(chan struct{})})
		n++
	}
	last := b.queue[n-1]
	last.waiters[hash]++
	return last
}

// leave removes a key unless another request waits for it, so the queue has no more keys than
// requests that wait.
func (b *batches) leave(own *batch, hash keyHash) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own.waiters[hash]--; own.waiters[hash] == 0 {
		delete(own.waiters, hash)
	}
}

func (b *batches) run() {
	for {
		next, hashes := b.next()
		if next == nil {
			return
		}
		next.found, next.err = b.lookUp(hashes)
		close(next.done)
	}
}

func (b *batches) next() (*batch, []keyHash) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.running = false
		return nil, nil
	}
	next := b.queue[0]
	b.queue = b.queue[1:]
	return next, slices.Collect(maps.Keys(next.waiters))
}
