package boot

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/cellquota/cellquota/deploy/local/layout"
	"github.com/cellquota/cellquota/deploy/local/platform"
)

// publisher keeps endpoints.json true from publish to withdraw.
type publisher struct {
	file    string
	present func() platform.Endpoints
	changes chan struct{} // of room one: many changes are one rewrite

	mu        sync.Mutex
	published bool
	withdrawn bool
}

func newPublisher(file string, present func() platform.Endpoints) *publisher {
	return &publisher{file: file, present: present, changes: make(chan struct{}, 1)}
}

// note says that a process id may have changed. It never blocks.
func (p *publisher) note() {
	select {
	case p.changes <- struct{}{}:
	default:
	}
}

// run rewrites the file after changes until ctx ends.
func (p *publisher) run(ctx context.Context) error {
	for {
		select {
		case <-p.changes:
			if err := p.rewrite(); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// publish writes the file from now on; after withdraw it does nothing.
func (p *publisher) publish() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.withdrawn {
		return nil
	}
	p.published = true
	return p.present().Write(p.file)
}

func (p *publisher) rewrite() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.published {
		return nil
	}
	return p.present().Write(p.file)
}

// withdraw removes the file and writes it no more.
func (p *publisher) withdraw() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.published, p.withdrawn = false, true
	return removeIfThere(p.file)
}

func removeIfThere(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// endpoints is the plan with the process ids of now.
func (b *boot) endpoints() platform.Endpoints {
	pids := map[string]int{}
	for _, s := range b.super.List() {
		pids[s.Name] = s.PID
	}
	e := b.plan.Endpoints(b.secrets)
	e.Kafka.PID = pids[b.plan.Kafka.Name]
	for i, m := range b.plan.Etcd.Members {
		e.Etcd.PIDs[i] = pids[m.Name]
	}
	for i, s := range b.plan.ControlPlanes {
		e.ControlPlanes[i].PID = pids[s.Name]
	}
	for i, s := range b.plan.Edges {
		e.Edges[i].PID = pids[s.Name]
	}
	for i, c := range b.plan.Cells {
		fillCell(&e.Cells[i], c, pids)
	}
	return e
}

func fillCell(out *platform.Cell, c layout.Cell, pids map[string]int) {
	out.RedisPID, out.PostgresPID = pids[c.Redis.Name], pids[c.Postgres.Name]
	if r := c.Replicas; r != nil {
		out.Replicas.RedisPID, out.Replicas.PostgresPID = pids[r.Redis.Name], pids[r.Postgres.Name]
		for i, s := range r.Sentinels {
			out.Replicas.SentinelPIDs[i] = pids[s.Name]
		}
	}
	for i, s := range c.Processes {
		out.Processes[i].PID = pids[s.Name]
	}
}
