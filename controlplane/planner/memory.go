package planner

import (
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// memory is what one leadership has learnt. It only spares work: losing it costs
// a resend. Guarded by Planner.mu.
type memory struct {
	leader core.Leader
	// compared: the stream over which a cell's shard was compared with the books.
	compared map[ids.CellID]uint64
	// known: cells whose shard was compared under this leadership, over whatever.
	known map[ids.CellID]bool
	// unbroken: the watch ran since all were compared; nobody is waited for.
	unbroken bool
	// saidCompared: /compared names this term.
	saidCompared bool
	// witnessed: when a silent cell's shard was last read; began: the leadership.
	witnessed map[ids.CellID]time.Time
	began     time.Time
	// reported: cells with a report that was not compared yet.
	reported map[ids.CellID]bool
	// loss: why etcd is known to have lost its past; Why "": it is not.
	loss core.Restored
	// sent: directives without an answer yet.
	sent map[string]sending
	// rules: the newest version that a cell's shard has, as told over a stream.
	rules map[rulesOf]installed
	// switches: the newest version of its record that a cell's shard was told whether
	// it is paused of, over a stream.
	switches map[ids.CellID]installed
	// joined: the version of a campaign whose books have all its cells.
	joined map[ids.CampaignID]int64
	// since: when a publish began to wait for a step's acknowledgements.
	since map[string]time.Time
	// rebalanced: when this leader last proposed a rebalance of a SKU by itself.
	rebalanced map[core.BookKey]time.Time
}

type sending struct {
	stream uint64
	at     time.Time
	record string // of an adjustment
}

type rulesOf struct {
	cell     ids.CellID
	campaign ids.CampaignID
}

type installed struct {
	stream  uint64
	version int64
}

func newMemory(leader core.Leader) memory {
	return memory{
		leader: leader, compared: map[ids.CellID]uint64{}, known: map[ids.CellID]bool{}, witnessed: map[ids.CellID]time.Time{}, reported: map[ids.CellID]bool{}, sent: map[string]sending{}, rules: map[rulesOf]installed{}, since: map[string]time.Time{},
		switches: map[ids.CellID]installed{}, joined: map[ids.CampaignID]int64{}, rebalanced: map[core.BookKey]time.Time{},
	}
}

// due tells whether a directive has to be sent, or sent again, over a stream, and
// notes that it now is.
func (p *Planner) due(id string, cell ids.CellID, stream uint64, record string) bool {
	key := string(cell) + "/" + id
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.memory.sent[key]
	if known && last.stream == stream && now.Sub(last.at) < p.cfg.ResendAfter {
		return false
	}
	p.memory.sent[key] = sending{stream: stream, at: now, record: record}
	return true
}

// forget makes a directive due again at once: it could not be sent after all.
func (p *Planner) forget(id string, cell ids.CellID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.memory.sent, string(cell)+"/"+id)
}

// answered ends the waiting for a directive and gives the record it was sent for.
func (p *Planner) answered(id string, cell ids.CellID) (record string, leader core.Leader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := string(cell) + "/" + id
	record = p.memory.sent[key].record
	delete(p.memory.sent, key)
	return record, p.memory.leader
}

// mayBeGranted tells whether the cell's shard was compared over this stream and
// etcd has its past.
func (p *Planner) mayBeGranted(cell ids.CellID, stream uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.memory.compared[cell]
	return p.memory.loss.Why == "" && known && at == stream
}

// hasRules tells whether the cell's shard has this version of the rules or a
// later one, as told over this stream.
func (p *Planner) hasRules(cell ids.CellID, campaign ids.CampaignID, stream uint64, version int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.memory.rules[rulesOf{cell, campaign}]
	return in.stream == stream && in.version >= version
}

func (p *Planner) gotRules(cell ids.CellID, campaign ids.CampaignID, stream uint64, version int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := rulesOf{cell, campaign}
	if in := p.memory.rules[at]; in.stream != stream || in.version < version {
		p.memory.rules[at] = installed{stream, version}
	}
}

// waited gives how long a step has been waiting, from its first call on.
func (p *Planner) waited(what string) time.Duration {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	since, known := p.memory.since[what]
	if !known {
		since = now
		p.memory.since[what] = now
	}
	return now.Sub(since)
}

func (p *Planner) leader() (core.Leader, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.memory.leader, p.memory.leader.CreateRevision != 0
}
