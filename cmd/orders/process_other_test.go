//go:build !linux

package main_test

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }

// requireNothingLeft cannot look here: a child that kept its output would show
// in the end of the test, see start.
func (p *process) requireNothingLeft() { <-p.exited }

// signalGroup sends a signal to one process only: ours would get it too.
func (p *process) signalGroup(signal syscall.Signal) { p.signal(signal) }
