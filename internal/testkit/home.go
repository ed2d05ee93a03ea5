package testkit

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// home is a server's directory under os.TempDir. A guardian, one small shell,
// holds the other end of a pipe: when close is called or when this process ends
// in whatever way, it wakes what was paused and removes the directory. So even
// kill -9 of a test binary leaves nothing behind.
type home struct {
	dir      string
	guardian *exec.Cmd
	pipe     io.WriteCloser
	close    func()
}

// guardianScript waits for the end of its input. A paused process would keep its
// death signal pending for ever, hence the SIGCONT first.
const guardianScript = `
read -r _
if [ -f "$1/paused" ]; then kill -CONT $(cat "$1/paused"); fi
i=0
while [ $i -lt 100 ]; do
	rm -rf -- "$1" && exit 0
	i=$((i+1)); sleep 0.1
done
exit 1
`

// newHome makes a directory owned by cred, or by us when cred is nil.
func newHome(name string, cred *syscall.Credential) (*home, error) {
	dir, err := os.MkdirTemp("", "cellquota-"+name+"-")
	if err != nil {
		return nil, err
	}
	if cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return nil, err
		}
	}
	h := &home{dir: dir, guardian: exec.Command("/bin/sh", "-c", guardianScript, "sh", dir)}
	h.guardian.Dir = "/"
	h.guardian.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if h.pipe, err = h.guardian.StdinPipe(); err != nil {
		return nil, err
	}
	if err := h.guardian.Start(); err != nil {
		return nil, fmt.Errorf("start the guardian of %s: %w", dir, err)
	}
	h.close = sync.OnceFunc(func() {
		_ = h.pipe.Close()
		_ = h.guardian.Wait()
	})
	return h, nil
}

func (h *home) path(elem ...string) string {
	return filepath.Join(append([]string{h.dir}, elem...)...)
}

// pause stops pids until resume, and first writes them down for the guardian.
func (h *home) pause(pids []int) error {
	var text []byte
	for _, pid := range pids {
		text = append(strconv.AppendInt(text, int64(pid), 10), '\n')
	}
	if err := os.WriteFile(h.path("paused"), text, 0o644); err != nil {
		return err
	}
	return signalAll(pids, syscall.SIGSTOP)
}

func (h *home) resume(pids []int) error {
	if err := signalAll(pids, syscall.SIGCONT); err != nil {
		return err
	}
	return os.RemoveAll(h.path("paused"))
}
