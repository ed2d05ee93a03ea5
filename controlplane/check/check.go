package check

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/clock"
)

// The parts of a cell, in the order of the findings.
const (
	PartRedis   = "redis"
	PartKafka   = "kafka"
	PartShard   = "shard"
	PartClocks  = "clocks"
	PartProcess = "process"
)

// Finding is one look.
type Finding struct {
	Part    string
	Subject string // what was looked at
	OK      bool
	Seen    string // at most a line
	Rule    string // what must be and what to do; empty when it is so
}

// Process is a live process of the cell, as the leader knows it.
type Process struct {
	ID, Group, Version string
	Roles, Faults      []string
}

// Subject is what a check is about.
type Subject struct {
	Spec core.CellSpec
	// Cell is the stored record; nil: the spec is not provisioned yet, so that its
	// topic, fence row and processes need not exist.
	Cell *core.Cell
	// Processes are those that hold a lease; Unknown says why nobody could tell.
	Processes []Process
	Unknown   string
}

// Config of a Checker. Zero values take the defaults of the keys check.*.
type Config struct {
	Timeout      time.Duration // of one part; 5 s
	MaxClockSkew time.Duration // 500 ms
	MinRetention time.Duration // of the admissions topic; 24 h
}

// Checker looks. It keeps nothing between two looks; safe for concurrent use.
type Checker struct {
	cfg       Config
	clock     clock.Clock
	encrypted bool
}

// Encrypted gives a checker that also names plain text on loopback: whatever runs
// without dev. What would leave this machine in plain text is always named, and not sent.
func (c Checker) Encrypted(on bool) Checker {
	c.encrypted = on
	return c
}

// New makes a checker.
func New(cfg Config, c clock.Clock) Checker {
	for _, d := range []struct {
		at       *time.Duration
		fallback time.Duration
	}{{&cfg.Timeout, 5 * time.Second}, {&cfg.MaxClockSkew, 500 * time.Millisecond}, {&cfg.MinRetention, 24 * time.Hour}} {
		if *d.at <= 0 {
			*d.at = d.fallback
		}
	}
	return Checker{cfg: cfg, clock: c}
}

// Look looks at every part at the same time and gives the findings in the order of
// the parts. It takes no longer than one part's deadline.
func (c Checker) Look(ctx context.Context, s Subject) []Finding {
	parts := []*part{
		{name: PartRedis, look: c.redis}, {name: PartKafka, look: c.kafka}, {name: PartShard, look: c.shard},
	}
	var all errgroup.Group // bounded: one for each part
	for _, p := range parts {
		all.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
			defer cancel()
			p.look(ctx, s, p)
			return nil
		})
	}
	_ = all.Wait()
	clocks, processes := &part{name: PartClocks}, &part{name: PartProcess}
	var readings []reading
	for _, p := range parts {
		readings = append(readings, p.clocks...)
	}
	c.compare(readings, clocks)
	look(s, processes)
	var out []Finding
	for _, p := range append(parts, clocks, processes) {
		out = append(out, p.found...)
	}
	return out
}

// OK tells whether every finding is.
func OK(all []Finding) bool {
	for _, f := range all {
		if !f.OK {
			return false
		}
	}
	return true
}

// part gathers what one look at a part saw. One goroutine uses it at a time.
type part struct {
	name   string
	look   func(context.Context, Subject, *part)
	found  []Finding
	clocks []reading
}

// saw adds a finding; the rule is kept where it is broken.
func (p *part) saw(subject, seen string, ok bool, rule string) {
	if ok {
		rule = ""
	}
	p.found = append(p.found, Finding{Part: p.name, Subject: subject, OK: ok, Seen: line(seen), Rule: rule})
}

// silent adds that something did not answer.
func (p *part) silent(subject string, err error) {
	p.saw(subject, err.Error(), false, "must answer the control plane; look at the server, the address and the network between")
}

// maxSeen bounds one line of what was seen, in bytes; servers' errors can be long.
const maxSeen = 300

func line(s string) string {
	out := []byte(s)
	for i, b := range out {
		if b < ' ' {
			out[i] = ' '
		}
	}
	if len(out) > maxSeen {
		return fmt.Sprintf("%s…", out[:maxSeen])
	}
	return string(out)
}
