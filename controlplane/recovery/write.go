package recovery

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
)

// cells brings each cell's record to what its shard shows.
func (d *Driver) cells(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot, shards []facts) error {
	for _, shard := range shards {
		stored, _ := s.Cell(shard.cell)
		if _, differs := planCell(stored, shard); !differs {
			continue
		}
		_, err := d.Store.Update(ctx, "recover cell "+string(shard.cell), func(tx *store.Tx) error {
			if _, err := d.mine(tx, leader, op.ID); err != nil {
				return err
			}
			cell, known, err := tx.Cell(shard.cell)
			if err != nil || !known {
				return err
			}
			next, differs := planCell(cell, shard)
			if !differs {
				return nil
			}
			return errors.Join(d.proof(tx, next, shard), tx.PutCell(next), tx.Audit(core.Audit{
				Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "cell " + string(shard.cell),
				Reason: fmt.Sprintf("its shard is %s at fence version %d", shard.row.State, next.FenceVersion),
			}))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// proof keeps that a fence stands which etcd forgot. It lists no units: what the
// fence sealed is out of the shard's own figures already.
func (d *Driver) proof(tx *store.Tx, cell core.Cell, shard facts) error {
	if cell.State == core.CellActive {
		return nil
	}
	version := fencedVersion(shard)
	_, have, err := tx.Proof(cell.Spec.ID, version)
	if err != nil || have {
		return err
	}
	return tx.PutProof(core.Proof{Cell: cell.Spec.ID, FenceVersion: version, Evidence: core.EvidenceStoreFence, FencedAt: shard.row.StateSince.UTC()})
}

// campaigns brings each campaign to what the shards were told of it.
func (d *Driver) campaigns(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot, shards []facts) error {
	gone := settled(s)
	for id, t := range toldBy(shards) {
		if gone(id) {
			continue
		}
		stored, known := s.Campaign(id)
		if _, differs, err := t.recovered(stored, known); err != nil || !differs {
			if err != nil {
				return waits("campaign %s cannot be read from the shards: %v", id, err)
			}
			continue
		}
		_, err := d.Store.Update(ctx, "recover campaign "+string(id), func(tx *store.Tx) error {
			if _, err := d.mine(tx, leader, op.ID); err != nil {
				return err
			}
			present, known, err := tx.Campaign(id)
			if err != nil {
				return err
			}
			next, differs, err := t.recovered(present, known)
			if err != nil || !differs {
				return err
			}
			return errors.Join(d.route(tx, id, t), endPublish(tx, present), tx.PutCampaign(next), tx.Audit(core.Audit{
				Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "campaign " + string(id), Reason: "taken from the shards at version " + strconv.FormatInt(t.rules.GetVersion(), 10),
			}))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// route makes a route that etcd lost; one that it has is right, for buckets are
// frozen.
func (d *Driver) route(tx *store.Tx, id ids.CampaignID, t told) error {
	_, known, err := tx.Route(id)
	if err != nil || known {
		return err
	}
	route, err := t.route(id)
	if err != nil {
		return err
	}
	return tx.PutRoute(route)
}

// endPublish ends a publish that etcd has as open and the shards have as done.
func endPublish(tx *store.Tx, c core.Campaign) error {
	if c.OperationID == "" {
		return nil
	}
	op, known, err := tx.Operation(c.OperationID)
	if err != nil || !known || op.State.Terminal() {
		return err
	}
	return tx.PutOperation(op.End(core.OperationDone, "the shards were told that it was done", tx.Now()))
}

// pageOf bounds one reading of a shard's adjustments, and one transaction's records.
const pageOf = 40

// RecordID names the record of one book taken from the shards. A digest under a
// prefix of ours: no id that an operator mints can be taken for it.
func RecordID(operation string, key core.BookKey) string {
	return "recovered." + core.Digest(operation, key.String())
}

// book brings the journal and then the book of one SKU to what the shards hold.
func (d *Driver) book(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot, p BookPlan, shards []facts) error {
	id := RecordID(op.ID, p.Key)
	if p.Stored.LastRecordID == id {
		return nil // done by an earlier pass of this operation
	}
	decided := map[string]core.Outcome{}
	for _, shard := range shards {
		if err := d.journal(ctx, leader, op, s, p.Key, shard, decided); err != nil {
			return fmt.Errorf("adjustments of %s in cell %s: %w", p.Key, shard.cell, err)
		}
	}
	for _, r := range s.OpenRecords() {
		if r.Key == p.Key {
			if err := d.end(ctx, leader, op, r.ID, decided); err != nil {
				return err
			}
		}
	}
	_, err := d.Store.Update(ctx, "recover book "+p.Key.String(), func(tx *store.Tx) error {
		if _, err := d.mine(tx, leader, op.ID); err != nil {
			return err
		}
		present, _, err := tx.Book(p.Key)
		if err != nil {
			return err
		}
		if present.LastRecordID == id {
			return nil
		}
		if present.Version != p.Stored.Version {
			return core.VersionConflict(p.Stored.Version, present.Version)
		}
		if _, _, err := tx.Record(id); err != nil {
			return err
		}
		next := p.Next
		next.Version = present.Version
		next = next.Stamp(id)
		record := core.Record{ID: id, Key: p.Key, Actor: op.Actor, Reason: "taken from the shards: " + op.Reason, OperationID: op.ID, BookVersion: next.Version, At: tx.Now(), Parameters: op.Parameters}
		return errors.Join(d.stock(tx, p), tx.PutBook(next), tx.PutRecord(record),
			tx.Audit(core.Audit{Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "book " + p.Key.String(), Reason: op.Reason}))
	})
	return err
}

// stock takes the confirmed limit from the physical stock, which grows where what
// is held already exceeds what etcd remembers of it.
func (d *Driver) stock(tx *store.Tx, p BookPlan) error {
	stock, known, err := tx.Stock(p.Key.SKU)
	if err != nil {
		return err
	}
	units := stock.Units
	if !known || units.Cmp(p.Limit) < 0 && len(stock.Limits) <= 1 {
		units = p.Limit
	}
	next, changed, err := stock.Take(p.Key.SKU, p.Key.Campaign, units, p.Limit)
	if err != nil || !changed {
		return err
	}
	return tx.PutStock(next)
}

// journal gives etcd what one shard decided about a SKU and etcd forgot: each
// numbered adjustment under its own id, and the newest book change that the shard
// was told. decided takes the shard's word on every id.
func (d *Driver) journal(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot, key core.BookKey, shard facts, decided map[string]core.Outcome) error {
	cell, _ := s.Cell(shard.cell)
	ctx, cancel := context.WithTimeout(ctx, 3*shardTime)
	defer cancel()
	conn, err := d.Open(ctx, cell.Spec)
	if err != nil {
		return waits("the shard of %s does not answer: %v", shard.cell, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for after := ""; ; {
		page, err := conn.Adjustments(ctx, skuOf(key), after, pageOf)
		if err != nil {
			return waits("the shard of %s does not answer: %v", shard.cell, err)
		}
		var lost []core.Record
		for _, a := range page {
			decided[a.ID] = core.Outcome(a.Outcome)
			after = a.ID
			if _, known := s.RecordOf(a.ID); !known {
				record, err := lostRecord(op, key, shard.cell, a)
				if err != nil {
					return err
				}
				lost = append(lost, record)
			}
		}
		if err := d.records(ctx, leader, op, lost); err != nil {
			return err
		}
		if len(page) < pageOf {
			break
		}
	}
	for _, stock := range shard.stocks {
		if stock.Key != key || stock.BookRecordID == "" {
			continue
		}
		if err := d.records(ctx, leader, op, []core.Record{{ID: stock.BookRecordID, Key: key, Actor: actor, Reason: "known from the shard of " + string(shard.cell), OperationID: op.ID}}); err != nil {
			return err
		}
	}
	return nil
}

// lostRecord is the record of an adjustment that only a shard remembers. A grant's
// has the parameters of a top-up, so that its caller's repeat finds it.
func lostRecord(op core.Operation, key core.BookKey, cell ids.CellID, a fencing.Applied) (core.Record, error) {
	units, err := quantity.New(a.Units)
	if err != nil {
		return core.Record{}, err
	}
	adjustment := core.Adjustment{
		ID: a.ID, Key: key, Cell: cell, Kind: core.AdjustmentKind(a.Kind), Units: units, State: core.StateProposed,
		Step: core.Step{FenceVersion: a.Version.Int64(), Number: a.Number}, Actor: actor, Reason: "known from the shard",
	}
	return core.Record{
		ID: a.ID, Key: key, Adjustments: []core.Adjustment{adjustment.Recovered(core.Outcome(a.Outcome))}, Actor: actor, Reason: "known from the shard of " + string(cell),
		OperationID: op.ID, Parameters: core.Digest("top-up", key.String(), string(cell), strconv.FormatInt(a.Units, 10)),
	}, nil
}

// records puts records that are not there, all in one transaction.
func (d *Driver) records(ctx context.Context, leader core.Leader, op core.Operation, lost []core.Record) error {
	if len(lost) == 0 {
		return nil
	}
	_, err := d.Store.Update(ctx, "recover journal", func(tx *store.Tx) error {
		if _, err := d.mine(tx, leader, op.ID); err != nil {
			return err
		}
		for _, r := range lost {
			if _, known, err := tx.Record(r.ID); err != nil || known {
				if err != nil {
					return err
				}
				continue
			}
			r.At = tx.Now()
			if err := tx.PutRecord(r); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// end ends the open adjustments of a record as the shards ended them.
func (d *Driver) end(ctx context.Context, leader core.Leader, op core.Operation, id string, decided map[string]core.Outcome) error {
	_, err := d.Store.Update(ctx, "recover record "+id, func(tx *store.Tx) error {
		if _, err := d.mine(tx, leader, op.ID); err != nil {
			return err
		}
		r, known, err := tx.Record(id)
		if err != nil || !known {
			return err
		}
		for i, a := range r.Adjustments {
			r.Adjustments[i] = a.Recovered(decided[a.ID])
		}
		return tx.PutRecord(r)
	})
	return err
}
