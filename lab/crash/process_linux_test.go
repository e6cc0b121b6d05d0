package crash_test

import "syscall"

// attributes end a child, also a stopped one, with the test binary.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
