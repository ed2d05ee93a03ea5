package recovery

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
)

// pageOf bounds one reading of a shard's adjustments, and one transaction's records.
const pageOf = 40

// decisions are the shards' words on the adjustments that etcd has as open.
type decisions struct {
	mu   sync.Mutex
	open map[string]bool
	word map[string]core.Outcome
}

func (d *decisions) take(a fencing.Applied) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[a.ID] {
		d.word[a.ID] = core.Outcome(a.Outcome)
	}
}

// journals gives etcd what the shards decided about the SKUs of these plans and it
// forgot, and ends what it has as open. Shards are read several at once, each over one
// connection.
func (d *Driver) journals(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot, plans []BookPlan, shards []facts) error {
	due := map[core.BookKey]bool{}
	for _, p := range plans {
		due[p.Key] = p.Stored.LastRecordID != RecordID(op.ID, p.Key) // else done by an earlier pass of this operation
	}
	decided := &decisions{open: map[string]bool{}, word: map[string]core.Outcome{}}
	var open []string
	for _, r := range s.OpenRecords() {
		if due[r.Key] {
			open = append(open, r.ID)
		}
		for _, a := range r.Adjustments {
			decided.open[a.ID] = due[r.Key]
		}
	}
	readings, all := errgroup.WithContext(ctx)
	readings.SetLimit(atOnce)
	for _, shard := range shards {
		readings.Go(func() error { return d.journal(all, leader, op, s, due, shard, decided) })
	}
	if err := readings.Wait(); err != nil {
		return err
	}
	for _, id := range open {
		if err := d.end(ctx, leader, op, id, decided.word); err != nil {
			return err
		}
	}
	return nil
}

// journal gives etcd what one shard decided and etcd forgot: each numbered adjustment
// under its own id, what fences sealed, and the newest book change that the shard was
// told of each SKU.
func (d *Driver) journal(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot, due map[core.BookKey]bool, shard facts, decided *decisions) error {
	lost := map[core.BookKey][]core.Record{}
	for _, seal := range shard.seals {
		if record := sealed(op, s, shard, seal); due[seal.key] && record.ID != "" {
			lost[seal.key] = append(lost[seal.key], record)
		}
	}
	var conn Shard
	for _, stock := range shard.stocks {
		if !due[stock.Key] {
			continue
		}
		if conn == nil {
			cell, _ := s.Cell(shard.cell)
			var err error
			if conn, err = d.Open(ctx, cell.Spec); err != nil {
				return waits("the shard of %s does not answer: %v", shard.cell, err)
			}
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		}
		if id := stock.BookRecordID; id != "" {
			lost[stock.Key] = append(lost[stock.Key], core.Record{ID: id, Key: stock.Key, Actor: actor, Reason: "known from the shard of " + string(shard.cell), OperationID: op.ID})
		}
		if err := d.adjustments(ctx, leader, op, s, stock.Key, shard.cell, conn, decided); err != nil {
			return fmt.Errorf("adjustments of %s in cell %s: %w", stock.Key, shard.cell, err)
		}
		if err := d.records(ctx, leader, op, s, lost[stock.Key]); err != nil {
			return err
		}
	}
	return nil
}

// adjustments gives etcd the numbered adjustments of one SKU that a shard decided and
// etcd forgot.
func (d *Driver) adjustments(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot, key core.BookKey, cell ids.CellID, conn Shard, decided *decisions) error {
	for after := ""; ; {
		page, err := readPage(ctx, conn, key, after)
		if err != nil {
			return waits("the shard of %s does not answer: %v", cell, err)
		}
		var lost []core.Record
		for _, a := range page {
			decided.take(a)
			after = a.ID
			if _, known := s.RecordOf(a.ID); !known {
				record, err := lostRecord(op, key, cell, a)
				if err != nil {
					return err
				}
				lost = append(lost, record)
			}
		}
		if err := d.records(ctx, leader, op, s, lost); err != nil {
			return err
		}
		if len(page) < pageOf {
			return nil
		}
	}
}

func readPage(ctx context.Context, conn Shard, key core.BookKey, after string) ([]fencing.Applied, error) {
	ctx, cancel := context.WithTimeout(ctx, shardTime)
	defer cancel()
	return conn.Adjustments(ctx, skuOf(key), after, pageOf)
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

// sealed is the record of what a fence sealed of one SKU, as a reclaim would have left
// it; a zero one where etcd has it. The recovered book stands on it: the sealed units
// are in its reserve, or frozen in its allocation, so that no reclaim may move them.
func sealed(op core.Operation, s view.Snapshot, shard facts, in seal) core.Record {
	if _, booked := s.Record(reclaim.SealID(shard.cell, in.version, in.key)); booked {
		return core.Record{}
	}
	campaign, _ := s.Campaign(in.key.Campaign)
	r := reclaim.Sealed(shard.cell, in.version, in.key, in.units, campaign.Spec.Reclaim == core.ReclaimNever)
	r.Actor, r.Reason, r.OperationID = actor, "known from the shard of "+string(shard.cell), op.ID
	return r
}

// records puts records that are not there, a bounded number in one transaction.
func (d *Driver) records(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot, lost []core.Record) error {
	for len(lost) > 0 {
		page := lost[:min(len(lost), pageOf)]
		lost = lost[len(page):]
		if known(s, page) {
			continue
		}
		_, err := d.Store.Update(ctx, "recover journal", func(tx *store.Tx) error {
			if _, err := d.mine(tx, leader, op.ID); err != nil {
				return err
			}
			for _, r := range page {
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
		if err != nil {
			return err
		}
	}
	return nil
}

func known(s view.Snapshot, records []core.Record) bool {
	for _, r := range records {
		if _, known := s.Record(r.ID); !known {
			return false
		}
	}
	return true
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
