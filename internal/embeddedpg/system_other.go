//go:build !linux && !darwin

package embeddedpg

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// The package compiles everywhere, but Start returns an error first.
const supported = false

func attributes() *syscall.SysProcAttr { return nil }

func killGroup(int) error { return errors.ErrUnsupported }

func flock(*os.File) error { return errors.ErrUnsupported }

func freeBytes(string) uint64 { return 0 }

func ownerOf(fs.FileInfo) int { return -1 }
