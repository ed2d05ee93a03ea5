package recovery

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
)

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

// routes lifts each route to what moved its buckets in the shards: a handover that etcd
// lost keeps its version for itself. Whose the buckets are the shards decide, whatever
// the route says: who does not own them gives none.
func (d *Driver) routes(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot, shards []facts) error {
	gone := settled(s)
	for id, newest := range movedBy(shards) {
		route, known := s.Route(id)
		if _, below := route.Above(newest); gone(id) || known && !below {
			continue
		}
		_, err := d.Store.Update(ctx, "recover route "+string(id), func(tx *store.Tx) error {
			if _, err := d.mine(tx, leader, op.ID); err != nil {
				return err
			}
			route, known, err := tx.Route(id)
			if err != nil || !known {
				return err
			}
			was := route.Version
			route, lifted := route.Above(newest)
			if !lifted {
				return nil
			}
			return errors.Join(tx.PutRoute(route), tx.Audit(core.Audit{
				Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "campaign " + string(id),
				Reason: fmt.Sprintf("route version %d is %d: a shard's buckets were moved by it", was, newest),
			}))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// route makes a route that etcd lost, as the buckets were dealt.
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

// RecordID names the record of one book taken from the shards. A digest under a
// prefix of ours: no id that an operator mints can be taken for it.
func RecordID(operation string, key core.BookKey) string {
	return "recovered." + core.Digest(operation, key.String())
}

// book sets the book of one SKU to what the shards hold; its journal is whole by then.
func (d *Driver) book(ctx context.Context, leader core.Leader, op core.Operation, p BookPlan) error {
	id := RecordID(op.ID, p.Key)
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
		return errors.Join(tx.PutBook(next), tx.PutRecord(record),
			tx.Audit(core.Audit{Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "book " + p.Key.String(), Reason: op.Reason}))
	})
	return err
}
