//go:build !linux

package subprocess

import "syscall"

// Only Linux can end a child with a parent that is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
