//go:build !linux

package tour

import "syscall"

// childAttributes are none: only Linux ends a child with its parent.
func childAttributes() *syscall.SysProcAttr { return nil }
