//go:build !unix

package pgbouncer

import "syscall"

// attributes are nil on systems without PgBouncer.
func attributes() *syscall.SysProcAttr { return nil }
