//go:build linux || darwin

package embeddedpg

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

const supported = true

// attributes puts a child process into its own group, because Ctrl-C is only for this
// program, and sets its user.
func attributes(as osUser) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if as.switched {
		attr.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return attr
}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

// flock takes the exclusive lock on file, or returns errLocked. The lock ends when the
// last process closes the open file.
func flock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// freeBytes returns the space for unprivileged users below dir, 0 if unknown.
func freeBytes(dir string) uint64 {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0
	}
	return stat.Bavail * uint64(stat.Bsize)
}

func ownerOf(info fs.FileInfo) (int, int) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(stat.Uid), int(stat.Gid)
}
