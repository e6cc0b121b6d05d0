package crash_test

import "syscall"

// attributes let a child end with the test binary, even one that is stopped.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
