package core

import (
	"cmp"
	"time"

	"github.com/cellquota/cellquota/internal/ids"
)

// Term names one leadership: a count that grows, and a random id that tells two
// leaders of one count apart after etcd was restored.
type Term struct {
	Count int64
	ID    string
}

// Compare orders terms by count.
func (t Term) Compare(other Term) int { return cmp.Compare(t.Count, other.Count) }

// Leader is who speaks now.
type Leader struct {
	Address string
	Term    Term
	// CreateRevision of the leader's key: what a leader's transactions compare.
	CreateRevision int64
}

// Instance is one process of a cell that holds a lease.
type Instance struct {
	Cell           ids.CellID
	ID             string
	Group          string
	Address        string // gRPC
	Roles          []string
	ProgramVersion string
	FenceVersion   int64 // it was told
	RegisteredAt   time.Time
	// SchemaStep is the newest step of the shard's schema that its program knows; 0: it
	// did not say.
	SchemaStep int64
	// Lease is etcd's id of its lease; ModRevision of its key.
	Lease       int64
	ModRevision int64
}

// Check verifies an instance that was read. ErrBroken.
func (i Instance) Check() error {
	if i.Cell == "" || i.ID == "" {
		return broken("instance %q of cell %q", i.ID, i.Cell)
	}
	return nil
}
