//go:build !linux

package programtest

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }

// RequireNoProcessLeft cannot list processes here, but [Start] detects an orphaned child.
func (p *Process) RequireNoProcessLeft() { <-p.exited }
