package ports

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
)

func claim(t *testing.T, dir string, names ...string) *Ports {
	t.Helper()
	p, err := Claim(dir, names)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Release() })
	return p
}

func TestPortsStayWithTheirNames(t *testing.T) {
	dir := t.TempDir()
	first := claim(t, dir, "etcd", "kafka")
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	second := claim(t, dir, "kafka", "edge", "etcd")
	for _, name := range []string{"etcd", "kafka"} {
		if first.Addr(name) != second.Addr(name) {
			t.Errorf("%s moved from %s to %s", name, first.Addr(name), second.Addr(name))
		}
	}
	seen := map[string]string{}
	for _, name := range []string{"etcd", "kafka", "edge"} {
		if other := seen[second.Addr(name)]; other != "" {
			t.Errorf("%s and %s share %s", name, other, second.Addr(name))
		}
		seen[second.Addr(name)] = name
	}
}

func TestClaimedPortsCanBeListenedOn(t *testing.T) {
	p := claim(t, t.TempDir(), "a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		ln, err := net.Listen("tcp", p.Addr(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(func() { _ = ln.Close() })
	}
}

func TestSecondClaimOfADirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	claim(t, dir, "a")
	if _, err := Claim(dir, []string{"a"}); !errors.Is(err, ErrTaken) {
		t.Fatalf("got %v, want ErrTaken", err)
	}
}

func TestRememberedPortInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := claim(t, dir, "a")
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", p.Addr("a"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	if _, err := Claim(dir, []string{"a"}); !errors.Is(err, ErrTaken) {
		t.Fatalf("got %v, want ErrTaken", err)
	}
}

func TestPlatformsAtTheSameTimeShareNothing(t *testing.T) {
	names := make([]string, 200) // three blocks each
	for i := range names {
		names[i] = fmt.Sprint("part-", i)
	}
	claims := make([]*Ports, 8)
	var all sync.WaitGroup
	for i := range claims {
		dir := t.TempDir()
		all.Go(func() {
			p, err := Claim(dir, names)
			if err != nil {
				t.Errorf("claim %d: %v", i, err)
				return
			}
			claims[i] = p
		})
	}
	all.Wait()
	owner := map[string]int{}
	for i, p := range claims {
		if p == nil {
			continue
		}
		t.Cleanup(func() { _ = p.Release() })
		for _, name := range names {
			if other, taken := owner[p.Addr(name)]; taken && other != i {
				t.Fatalf("claims %d and %d share %s", other, i, p.Addr(name))
			}
			owner[p.Addr(name)] = i
		}
	}
}

func TestABlockThatIsFullSaysSo(t *testing.T) {
	dir := t.TempDir()
	if err := claim(t, dir, "a").Release(); err != nil {
		t.Fatal(err)
	}
	many := make([]string, block)
	for i := range many {
		many[i] = fmt.Sprint("part-", i)
	}
	if _, err := Claim(dir, many); !errors.Is(err, ErrTaken) {
		t.Fatalf("got %v, want ErrTaken", err)
	}
}

func TestEphemeralRange(t *testing.T) {
	for text, want := range map[string]int{
		"32768\t60999\n": 32768,
		"20000 60999":    20000,
		"1024 65000":     usualEphemeral, // no room below
		"nonsense":       usualEphemeral,
	} {
		if got := ephemeralFrom(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}
