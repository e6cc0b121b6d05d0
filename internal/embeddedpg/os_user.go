package embeddedpg

import (
	"io/fs"
	"os"
	"path/filepath"
)

// nobody is the conventional unprivileged user and group of Linux. On macOS, it is an
// unused id.
const nobody = 65534

type osUser struct {
	uid, gid int
	switched bool // not the user of this process
}

// serverUser returns this process's user, or nobody for root, which PostgreSQL
// rejects.
func serverUser() osUser {
	if os.Geteuid() == 0 {
		return osUser{uid: nobody, gid: nobody, switched: true}
	}
	return osUser{uid: os.Geteuid(), gid: os.Getegid()}
}

// folderMode returns the mode of the package's folders: private, unless another user's
// server must pass through.
func (u osUser) folderMode() fs.FileMode {
	if u.switched {
		return 0o711
	}
	return 0o700
}

// canReach reports whether the user may enter path, if it is a folder, or execute
// it, and enter all folders above it.
func (u osUser) canReach(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(path)
		if err != nil || !u.mayExecute(info) {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
		path = filepath.Dir(path)
	}
}

func (u osUser) mayExecute(info fs.FileInfo) bool {
	bit := fs.FileMode(0o001)
	switch uid, gid := ownerOf(info); {
	case uid == u.uid:
		bit = 0o100
	case gid == u.gid:
		bit = 0o010
	}
	return info.Mode()&bit != 0
}
