package accounts

import "time"

func (a *Authenticator) SetLookupTimeout(timeout time.Duration) { a.lookupTimeout = timeout }

func (a *Authenticator) Waiting() (keys int) {
	a.unknownKeys.mu.Lock()
	defer a.unknownKeys.mu.Unlock()
	if next := a.unknownKeys.next; next != nil {
		keys = len(next.hashes)
	}
	return keys
}
