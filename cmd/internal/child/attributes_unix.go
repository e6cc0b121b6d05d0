//go:build unix && !linux

package child

import "syscall"

// childAttributes keep Ctrl-C in a terminal for the tour, which then ends its
// children. Only Linux ends a child with a parent that is killed.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
