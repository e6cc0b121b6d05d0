package crash_test

import "syscall"

// attributes end a child with the test binary, also a stopped child.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
