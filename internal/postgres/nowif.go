package postgres

import "time"

// NowIf returns the argument with which "now() + $n::interval" is now() if set, and
// NULL otherwise. Citus rejects now() within CASE in an UPDATE.
func NowIf(set bool) *time.Duration {
	if set {
		return new(time.Duration)
	}
	return nil
}
