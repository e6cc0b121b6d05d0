//go:build !unix

package subprocess

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
