package subprocess

import "syscall"

// attributes end a child with its parent, even if the parent is killed. In a process group
// of its own, Ctrl-C in a terminal does not reach it: the parent stops its children.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
