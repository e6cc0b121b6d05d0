//go:build !linux

package crash_test

import "syscall"

// attributes have no equivalent here: a test binary that is killed leaves its
// children behind.
func attributes() *syscall.SysProcAttr { return nil }
