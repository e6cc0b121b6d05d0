//go:build !unix

package child

import "syscall"

// childAttributes are none: there are no process groups as Unix has them.
func childAttributes() *syscall.SysProcAttr { return nil }
