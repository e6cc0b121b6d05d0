//go:build !linux

package main_test

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }

// requireNoProcessLeft cannot list processes here, but start detects an orphaned child.
func (p *process) requireNoProcessLeft() { <-p.exited }

// signalGroup signals one process only, because the test is in its group.
func (p *process) signalGroup(signal syscall.Signal) { p.signal(signal) }
