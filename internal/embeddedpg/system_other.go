//go:build !linux && !darwin

package embeddedpg

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// The rest of the package compiles anywhere; Start refuses before any of these
// is reached.
const supported = false

func attributes(account) *syscall.SysProcAttr { return nil }

func killGroup(int) error { return errors.ErrUnsupported }

func flock(*os.File) error { return errors.ErrUnsupported }

func freeBytes(string) uint64 { return 0 }

func ownerOf(fs.FileInfo) (int, int) { return -1, -1 }
