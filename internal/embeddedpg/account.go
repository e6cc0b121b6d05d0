package embeddedpg

import (
	"io/fs"
	"os"
	"path/filepath"
)

// nobody is the user and group id that stands for no one in particular on
// Linux; on macOS, which has no such name for it, any unused id does as well.
const nobody = 65534

// account is the user a server runs as.
type account struct {
	uid, gid int
	switched bool // not the user this process runs as
}

// serverAccount returns the user the server has to run as: nobody when we are
// root, which PostgreSQL refuses, and otherwise ourselves.
func serverAccount() account {
	if os.Geteuid() == 0 {
		return account{uid: nobody, gid: nobody, switched: true}
	}
	return account{uid: os.Geteuid(), gid: os.Getegid()}
}

// folderMode is the mode of our own folders: private, but a server that runs as
// somebody else must be able to pass through.
func (a account) folderMode() fs.FileMode {
	if a.switched {
		return 0o711
	}
	return 0o700
}

// canReach reports whether the account may enter every folder on the way to
// path, and path itself if that is one, or else execute it.
func (a account) canReach(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(path)
		if err != nil || !a.may(info, 0o1) {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
		path = filepath.Dir(path)
	}
}

// may looks up the permission bits (of 0o7) in the class of users that the
// account belongs to.
func (a account) may(info fs.FileInfo, bits fs.FileMode) bool {
	uid, gid := ownerOf(info)
	switch {
	case uid == a.uid:
		bits <<= 6
	case gid == a.gid:
		bits <<= 3
	}
	return info.Mode().Perm()&bits == bits
}
