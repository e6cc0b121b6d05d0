//go:build !linux

package crash_test

import "syscall"

// attributes have no equivalent here: children of a killed test binary continue.
func attributes() *syscall.SysProcAttr { return nil }
