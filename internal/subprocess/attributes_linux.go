package subprocess

import "syscall"

// attributes end a child with its parent. Ctrl-C in a terminal does not reach its process
// group: the parent stops it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
