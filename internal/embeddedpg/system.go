//go:build linux || darwin

package embeddedpg

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

const supported = true

// attributes sets the user of a child process, and its group, because Ctrl-C in a terminal
// is only for this program.
func attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if asNobody() {
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return attr
}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

// flock locks the file until the last process closes it, or returns errLocked.
func flock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

func freeBytes(dir string) uint64 {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0
	}
	return stat.Bavail * uint64(stat.Bsize)
}

func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
