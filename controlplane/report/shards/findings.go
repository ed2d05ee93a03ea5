package shards

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

var (
	//go:embed sql/has_findings.sql
	hasFindingsSQL string
	//go:embed sql/findings.sql
	findingsSQL string
	//go:embed sql/finding.sql
	findingSQL string
	//go:embed sql/repairs.sql
	repairsSQL string
	//go:embed sql/frozen.sql
	frozenSQL string
)

// Finding is a difference between the ledgers as the shard keeps it.
type Finding struct {
	ID, Kind, Campaign, SKU, Request, Event, Reservation, Order string
	Units                                                       int32
	AgeSeconds                                                  int64
	State, Action, Detail, Owner                                string
	Tries                                                       int32
	Entry                                                       int64 // ledger entry that is one too many; 0: none
	FoundMicros                                                 int64 // when, for the order of pages
}

// FindingRepair is one thing that was done about a finding, or tried.
type FindingRepair struct {
	Action, Outcome, Detail, Actor, Reason, Incident, Approval, Approver string
	At                                                                   time.Time
}

// FindingFilter narrows a list; empty fields match all.
type FindingFilter struct {
	Campaign, SKU string
	States        []string
	// AfterMicros and AfterID are the last row of the page before.
	AfterMicros int64
	AfterID     string
	Limit       int
}

// Frozen is a SKU whose units nothing moves by itself while a finding is open.
type Frozen struct {
	Campaign, SKU, Finding string
	Findings               int32
}

// keepsFindings tells whether the schema has what reconcile keeps (step 7); one of a step before keeps
// nothing that could be listed so.
func (s *Snapshot) keepsFindings(ctx context.Context) (bool, error) {
	var has bool
	if err := s.tx.QueryRow(ctx, hasFindingsSQL).Scan(&has); err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return has, nil
}

// Findings reads a page of findings, oldest first.
func (s *Snapshot) Findings(ctx context.Context, f FindingFilter) ([]Finding, error) {
	if has, err := s.keepsFindings(ctx); err != nil || !has {
		return nil, err
	}
	return collect(ctx, s, pgx.RowToStructByPos[Finding], findingsSQL, f.Campaign, f.SKU, f.States, f.AfterMicros, f.AfterID, f.Limit)
}

// Finding reads one with its scene ("": none was taken) and what was done about it; false: there is none.
func (s *Snapshot) Finding(ctx context.Context, id string) (f Finding, scene string, done []FindingRepair, found bool, err error) {
	if has, err := s.keepsFindings(ctx); err != nil || !has {
		return f, "", nil, false, err
	}
	type row struct {
		Finding
		Scene string
	}
	list, err := collect(ctx, s, func(r pgx.CollectableRow) (v row, err error) {
		err = r.Scan(&v.ID, &v.Kind, &v.Campaign, &v.SKU, &v.Request, &v.Event, &v.Reservation, &v.Order, &v.Units, &v.AgeSeconds, &v.State, &v.Action,
			&v.Detail, &v.Owner, &v.Tries, &v.Entry, &v.FoundMicros, &v.Scene)
		return v, err
	}, findingSQL, id)
	if err != nil || len(list) == 0 {
		return f, "", nil, false, err
	}
	done, err = collect(ctx, s, pgx.RowToStructByPos[FindingRepair], repairsSQL, id)
	return list[0].Finding, list[0].Scene, done, err == nil, err
}

// FrozenSKUs reads which SKUs findings hold.
func (s *Snapshot) FrozenSKUs(ctx context.Context) ([]Frozen, error) {
	if has, err := s.keepsFindings(ctx); err != nil || !has {
		return nil, err
	}
	return collect(ctx, s, pgx.RowToStructByPos[Frozen], frozenSQL)
}
