package accounts

import "time"

func (a *Authenticator) SetLookupTimeout(timeout time.Duration) { a.lookupTimeout = timeout }

func (a *Authenticator) Waiting() (keys int) {
	a.unknownKeys.mu.Lock()
	defer a.unknownKeys.mu.Unlock()
	for _, b := range a.unknownKeys.queue {
		keys += len(b.waiters)
	}
	return keys
}
