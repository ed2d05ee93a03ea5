package ports

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

const (
	// block is how many ports are claimed together; the first is the guard.
	block = 128
	// lowest keeps clear of what people run by hand.
	lowest = 10240
	// mostPorts bounds a platform; 64 cells with split roles need a fifth.
	mostPorts = 10_000
)

// ErrTaken means that ports which the data directory remembers are in use by
// somebody else now.
var ErrTaken = errors.New("ports are taken")

// Ports is a claim on ports. Release it when the platform has ended.
type Ports struct {
	saved  saved
	guards []net.Listener
}

// saved is what ports.json holds.
type saved struct {
	First  int            `json:"first"`  // the first guard
	Blocks int            `json:"blocks"` // how many blocks follow each other
	Ports  map[string]int `json:"ports"`
}

// Claim gives every name a port. What dataDir remembers is taken again and is
// an ErrTaken where it cannot be; names that are new get ports of the same
// blocks.
func Claim(dataDir string, names []string) (*Ports, error) {
	if len(names) > mostPorts {
		return nil, fmt.Errorf("%d ports are more than a platform may have (%d)", len(names), mostPorts)
	}
	file := filepath.Join(dataDir, "ports.json")
	p, err := load(file)
	if err != nil {
		return nil, err
	}
	if p == nil {
		p, err = search(names)
	} else {
		err = p.retake(names)
	}
	if err != nil {
		return nil, err
	}
	if err := p.save(file); err != nil {
		return nil, errors.Join(err, p.Release())
	}
	return p, nil
}

// Addr is the loopback address of a name that was claimed.
func (p *Ports) Addr(name string) string { return loopback(p.saved.Ports[name]) }

// Release lets others have the blocks. To repeat it is no error.
func (p *Ports) Release() error {
	var errs []error
	for _, g := range p.guards {
		errs = append(errs, g.Close())
	}
	p.guards = nil
	return errors.Join(errs...)
}

// search finds blocks that nobody guards, from a random place on.
func search(names []string) (*Ports, error) {
	need := 1 + len(names)*3/2/(block-1) // half as many again, for later names
	places := (highest()-lowest)/block - need + 1
	if places < 1 {
		return nil, fmt.Errorf("no room for %d ports between %d and %d", len(names), lowest, highest())
	}
	from := rand.IntN(places) // spreads platforms, guards nothing
	for i := range places {
		p := &Ports{saved: saved{
			First: lowest + (from+i)%places*block, Blocks: need, Ports: map[string]int{},
		}}
		err := p.guard()
		if err == nil {
			if err = p.assign(names); err == nil {
				return p, nil
			}
		}
		if err := p.Release(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: no free block for %d ports between %d and %d", ErrTaken, len(names), lowest, highest())
}

// retake takes remembered blocks again and gives new names ports of them.
func (p *Ports) retake(names []string) error {
	if err := p.guard(); err != nil {
		return fmt.Errorf("%w: the ports from %d on belong to this data directory but are in use; stop what uses them or take a new --data-dir", err, p.saved.First)
	}
	if err := p.assign(names); err != nil {
		return errors.Join(err, p.Release())
	}
	return nil
}

// guard listens on the first port of each block.
func (p *Ports) guard() error {
	for i := range p.saved.Blocks {
		ln, err := net.Listen("tcp", loopback(p.saved.First+i*block))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrTaken, errors.Join(err, p.Release()))
		}
		p.guards = append(p.guards, ln)
	}
	return nil
}

// assign gives each name that has none the next port that can be listened on,
// and sees that those which have one still can be.
func (p *Ports) assign(names []string) error {
	var held []net.Listener
	defer func() {
		for _, ln := range held {
			_ = ln.Close() // held for the look only
		}
	}()
	used := map[int]bool{}
	for _, name := range names {
		port, known := p.saved.Ports[name]
		if !known {
			continue
		}
		ln, err := net.Listen("tcp", loopback(port))
		if err != nil {
			return fmt.Errorf("%w: %s has port %d in this data directory: %w", ErrTaken, name, port, err)
		}
		held = append(held, ln)
	}
	for _, port := range p.saved.Ports {
		used[port] = true
	}
	next := p.saved.First
	for _, name := range names {
		if _, known := p.saved.Ports[name]; known {
			continue
		}
		ln, port, err := p.nextFree(next, used)
		if err != nil {
			return err
		}
		held = append(held, ln)
		p.saved.Ports[name], next = port, port
	}
	return nil
}

// nextFree listens on the first port above after that is neither a guard nor
// used.
func (p *Ports) nextFree(after int, used map[int]bool) (net.Listener, int, error) {
	end := p.saved.First + p.saved.Blocks*block
	for port := after + 1; port < end; port++ {
		if used[port] || (port-p.saved.First)%block == 0 {
			continue
		}
		if ln, err := net.Listen("tcp", loopback(port)); err == nil {
			return ln, port, nil
		}
	}
	return nil, 0, fmt.Errorf("%w: the %d ports from %d on have no room for more; take a new --data-dir", ErrTaken, p.saved.Blocks*block, p.saved.First)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// load reads what was saved; nil when nothing was.
func load(file string) (*Ports, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // nothing saved
	}
	if err != nil {
		return nil, err
	}
	p := &Ports{}
	if err := json.Unmarshal(text, &p.saved); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if p.saved.First < 1 || p.saved.Blocks < 1 || p.saved.First+p.saved.Blocks*block > 65536 || p.saved.Ports == nil {
		return nil, fmt.Errorf("%s: not a claim of ports", file)
	}
	return p, nil
}

func (p *Ports) save(file string) error {
	text, err := json.MarshalIndent(p.saved, "", "  ")
	if err != nil {
		return err
	}
	next := file + ".next"
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}
