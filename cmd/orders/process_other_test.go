//go:build !linux

package main_test

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }

// requireNoProcessLeft cannot list processes here. start detects an orphaned child that
// keeps its output open.
func (p *process) requireNoProcessLeft() { <-p.exited }

// signalGroup sends a signal to one process only, because the test is in its group.
func (p *process) signalGroup(signal syscall.Signal) { p.signal(signal) }
