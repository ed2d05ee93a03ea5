package boot

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is who PostgreSQL runs as: it refuses root. nil is ourselves.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil // nobody else
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")
}

// own gives a file to the account.
func own(path string, who *syscall.Credential) error {
	if who == nil {
		return nil
	}
	return os.Chown(path, int(who.Uid), int(who.Gid))
}

// handlePath is how a child finds the first directory among its handles.
const handlePath = "/proc/self/fd/3"

// pathFor gives the path by which the account reaches dir, and the handles that
// the child needs for it. Below a folder that the account may not enter, such
// as root's home or a temporary folder of mode 0700, an open handle of dir gets
// it there; nobody's permissions are changed.
func pathFor(dir string, who *syscall.Credential) (path string, handles []string) {
	for at := dir; who != nil; at = filepath.Dir(at) {
		if !mayEnter(at, who) {
			return handlePath, []string{dir}
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	return dir, nil
}

// mayEnter looks at the mode bits only: where they mislead, the handle works
// too.
func mayEnter(dir string, who *syscall.Credential) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	mode := info.Mode().Perm()
	switch {
	case stat.Uid == who.Uid:
		return mode&0o100 != 0
	case stat.Gid == who.Gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}
