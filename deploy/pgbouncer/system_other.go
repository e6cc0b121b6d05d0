//go:build !unix

package pgbouncer

import "syscall"

// attributes are none where there is no PgBouncer either.
func attributes() *syscall.SysProcAttr { return nil }
