// Package idempotencytest helps to test code that is built on package idempotency. Its
// functions create keys in any state and move leases and runs back in time, so no test
// sleeps. A [Proxy] breaks a COMMIT in the ways that leave its outcome unknown. Only
// tests import it.
package idempotencytest
