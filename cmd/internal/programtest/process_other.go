//go:build !linux

package programtest

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }

// requireNoProcessLeft cannot list processes here, but start detects an orphaned child.
func (p *process) requireNoProcessLeft() { <-p.exited }

func (p *process) signalGroup(signal syscall.Signal) { p.signal(signal) }
