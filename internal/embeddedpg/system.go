//go:build linux || darwin

package embeddedpg

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

const supported = true

// attributes puts a child into a process group of its own, because Ctrl-C is
// for our program and not for its server, and lets it run as the given account.
func attributes(as account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if as.switched {
		attr.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return attr
}

// killGroup kills the process group that pid leads.
func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

// flock takes the exclusive lock on file, or returns errLocked at once. The lock
// belongs to the open file: it ends when the last process that has it closes it.
func flock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// freeBytes returns how much an unprivileged user may still write below dir; 0
// when dir cannot be asked.
func freeBytes(dir string) uint64 {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0
	}
	return stat.Bavail * uint64(stat.Bsize)
}

// ownerOf returns the user and group a file belongs to.
func ownerOf(info fs.FileInfo) (int, int) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(stat.Uid), int(stat.Gid)
}
