//go:build unix && !linux

package subprocess

import "syscall"

// attributes put a child into a process group of its own, so that Ctrl-C in a
// terminal reaches the parent only, which then stops its children. Only Linux can
// end a child with a parent that is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
