package accounts

import "time"

// SetLookupTimeout shortens the wait of a test.
func (a *Authenticator) SetLookupTimeout(timeout time.Duration) { a.lookupTimeout = timeout }
