package tour

import "syscall"

// childAttributes let a child end with us, even when we are killed.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
