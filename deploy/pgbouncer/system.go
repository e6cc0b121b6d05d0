//go:build unix

package pgbouncer

import "syscall"

// attributes put the pooler and its watcher into a process group of their own, so that
// Ctrl-C does not reach them.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
