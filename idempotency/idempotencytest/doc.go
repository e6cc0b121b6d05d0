// Package idempotencytest helps to test code that is built on package idempotency. Its
// functions move keys back in time, so no test sleeps. [Wire] breaks a COMMIT in the
// ways that leave its outcome unknown.
package idempotencytest
