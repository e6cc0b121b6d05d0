//go:build !linux

package crash_test

import "syscall"

// attributes have no equivalent here: the children of a killed test binary keep
// running.
func attributes() *syscall.SysProcAttr { return nil }
