package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// A unix socket's path has room for 107 bytes, and a test's data directory is
// easily longer. So both sides go through a handle of the directory:
// /proc/self/fd/N/control.sock is short and names the same file.
func viaHandle(dataDir string, use func(path string) error) error {
	dir, err := os.OpenFile(dataDir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	defer dir.Close() //nolint:errcheck // opened for reading only
	return use(filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), socketName))
}

// Listen opens the control socket of dataDir, in place of one that a killed
// supervisor left. The caller must be the only supervisor of dataDir.
func Listen(dataDir string) (net.Listener, error) {
	left := filepath.Join(dataDir, socketName)
	if err := os.Remove(left); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	var ln *net.UnixListener
	err := viaHandle(dataDir, func(path string) error {
		var err error
		ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, err
	}
	// The handle is gone, so the listener cannot unlink its file by that path.
	ln.SetUnlinkOnClose(false)
	if err := os.Chmod(left, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), ln.Close())
	}
	return &socket{Listener: ln, file: left}, nil
}

// socket is a listener that takes its file with it.
type socket struct {
	net.Listener
	file string
}

func (s *socket) Close() error {
	err := s.Listener.Close()
	if gone := os.Remove(s.file); !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// dial connects to the control socket of dataDir. ErrNotRunning when there is
// none or nobody listens on it.
func dial(ctx context.Context, dataDir string) (net.Conn, error) {
	var conn net.Conn
	err := viaHandle(dataDir, func(path string) error {
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", path)
		return err
	})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%s: %w", dataDir, ErrNotRunning)
	}
	return conn, err
}
