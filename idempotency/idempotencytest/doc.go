// Package idempotencytest helps to test code that is built on package idempotency. [Wire]
// breaks a COMMIT in the ways that leave its outcome unknown.
package idempotencytest
