//go:build !unix

package subprocess

import "syscall"

// attributes are nil: there are no Unix process groups here.
func attributes() *syscall.SysProcAttr { return nil }
