package testkit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Ports are leased from a range below the kernel's ephemeral ports, so that no
// outgoing connection can take one between lease and use, and under a lock file
// per port, so that two test binaries never lease the same.
const (
	firstPort = 20000
	lastPort  = 32000
)

// FreePort leases a loopback port for the rest of the test. Nothing listens on it
// yet; it is given back when the test ends.
func FreePort(t testing.TB) int {
	t.Helper()
	p, err := leasePort()
	if err != nil {
		t.Fatalf("lease a port: %v", err)
	}
	t.Cleanup(p.release)
	return p.number
}

// port is a leased port; the lease ends with release or with the process.
type port struct {
	number  int
	file    *os.File
	release func()
}

func (p *port) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

func leasePort() (*port, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("cellquota-ports-%d", os.Geteuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	start := rand.IntN(lastPort - firstPort)
	for i := range lastPort - firstPort {
		number := firstPort + (start+i)%(lastPort-firstPort)
		p, err := tryPort(dir, number)
		if p != nil || err != nil {
			return p, err
		}
	}
	return nil, errors.New("no port from 20000 to 32000 is free")
}

// tryPort is nil without an error when somebody else has the port.
func tryPort(dir string, number int) (*port, error) {
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(number)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, f.Close()
	}
	p := &port{number: number, file: f}
	p.release = sync.OnceFunc(func() { _ = f.Close() })
	l, err := net.Listen("tcp", p.addr())
	if err != nil {
		return nil, f.Close()
	}
	return p, l.Close()
}
