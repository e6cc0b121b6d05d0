//go:build unix

package pgbouncer

import "syscall"

// attributes put the pooler and its watcher into a process group of their own:
// Ctrl-C, or whatever else ends our whole group, is not for them.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
