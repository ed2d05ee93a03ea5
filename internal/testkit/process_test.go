package testkit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func ownerOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// childEnv makes this test binary play the part of one that is killed.
const childEnv = "CELLQUOTA_TESTKIT_CHILD"

// TestServersDoNotOutliveTheirTest kills a test binary of ours with SIGKILL while
// its servers run, one of them paused, and looks for what is left.
func TestServersDoNotOutliveTheirTest(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		playChild(t)
		return
	}
	t.Parallel()
	child := exec.Command(os.Args[0], "-test.run=^TestServersDoNotOutliveTheirTest$", "-test.timeout=2m")
	child.Env = append(os.Environ(), childEnv+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pids, dirs := readChild(t, out)
	_ = child.Process.Kill()
	_ = child.Wait()
	Eventually(t, 20*time.Second, func() error {
		for _, pid := range pids {
			if alive(pid) {
				return fmt.Errorf("process %d lives on", pid)
			}
		}
		for _, dir := range dirs {
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("directory %s is left", dir)
			}
		}
		return nil
	})
}

func playChild(t *testing.T) {
	own, redis := OwnPostgres(t, nil), Redis(t)
	own.Pause(t)
	for _, pid := range own.paused {
		fmt.Println("pid", pid)
	}
	fmt.Println("pid", redis.PID())
	fmt.Println("dir", own.server.home.dir)
	fmt.Println("dir", redis.home.dir)
	fmt.Println("ready")
	<-t.Context().Done()
}

func readChild(t *testing.T, out io.Reader) (pids []int, dirs []string) {
	t.Helper()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		switch kind, value, _ := strings.Cut(lines.Text(), " "); kind {
		case "pid":
			var pid int
			if _, err := fmt.Sscan(value, &pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		case "dir":
			dirs = append(dirs, value)
		case "ready":
			if len(pids) < 3 || len(dirs) != 2 {
				t.Fatalf("the child has processes %v and directories %v", pids, dirs)
			}
			return pids, dirs
		}
	}
	t.Fatalf("the child ended early: %v", lines.Err())
	return nil, nil
}

func TestLeasedPortsAreDifferentAndFree(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 50 {
		p := FreePort(t)
		if seen[p] {
			t.Fatalf("port %d was leased twice", p)
		}
		seen[p] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}

func TestMissingBinarySaysWhatToDo(t *testing.T) {
	t.Parallel()
	_, err := findBinary("no-such-server")
	if err == nil || !strings.Contains(err.Error(), "deploy/local/setup") {
		t.Fatalf("error = %v", err)
	}
}
