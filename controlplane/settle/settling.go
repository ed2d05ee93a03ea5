package settle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/campaignreport"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// pruneBatch bounds the records that one transaction deletes: each is compared and
// deleted, and etcd takes 128 operations.
const pruneBatch = 48

// everything is the bound of a listing that must be whole.
const everything = 1 << 30

// settle takes a campaign as far as it gets now. Which step is next is read from
// the campaign's record and its books alone.
func (d *Driver) settle(ctx context.Context, leader core.Leader, c core.Campaign) error {
	switch c.State {
	case core.CampaignClosed:
		object, reported := c.Report()
		if !reported {
			return d.takeAccount(ctx, leader, c) // 1. report
		}
		content, err := d.Archive.Get(ctx, object)
		if err != nil {
			return err
		}
		report, err := campaignreport.Decode(object, content)
		if err != nil {
			return err
		}
		if err := d.closeBooks(ctx, leader, c, report); err != nil { // 2. books
			return err
		}
		return d.archiveJournal(ctx, leader, c) // 3. journal, 4. settled
	case core.CampaignSettled:
		return d.prune(ctx, leader, c) // 5. prune
	default:
		return nil
	}
}

// takeAccount makes the final report when nothing of the campaign can change any
// more, puts it into the archive, and only then lets the campaign's record name it.
func (d *Driver) takeAccount(ctx context.Context, leader core.Leader, c core.Campaign) error {
	from := d.Clock.Now()
	if !d.due(c.Spec.ID, from) {
		return nil
	}
	seen := d.look(ctx, d.View.Snapshot(), c, true)
	if len(seen.blockers()) > 0 { // GetCampaign shows them
		now := d.Clock.Now()
		d.dueAgain(c.Spec.ID, now.Add(rest*now.Sub(from)))
		return nil
	}
	result, err := d.accounts.Read(ctx, c.Spec.ID)
	if err != nil {
		return err
	}
	if result.Side.Campaign.ModRevision != c.ModRevision || len(result.Unreachable) > 0 {
		return errMoved
	}
	report, err := campaignreport.Make(result, d.Clock.Now())
	if err != nil {
		return err
	}
	if report.Verdict != verify.OK { // Blockers names it; nothing is archived on sums that do not hold
		now := d.Clock.Now()
		d.dueAgain(c.Spec.ID, now.Add(rest*now.Sub(from)))
		return fmt.Errorf("%w: %s: %s", core.ErrBroken, c.Spec.ID, strings.Join(unsound(report), "; "))
	}
	content, err := report.Encode()
	if err != nil {
		return err
	}
	object, err := d.Archive.Put(ctx, objectName(c.Spec.ID, "report", content), content)
	if err != nil {
		return err
	}
	if err := d.change(ctx, leader, c, "report", func(present core.Campaign) core.Campaign { return present.WithReport(object) }); err != nil {
		return err
	}
	d.Metrics.account(c.Spec.ID, result.Accounts)
	d.Log.InfoContext(ctx, "the account of a campaign was taken", telemetry.Event, "campaign_reported", telemetry.CampaignID, c.Spec.ID, "object", object.Name)
	return nil
}

// change is one transaction on the campaign's record, if it is still the one that
// was looked at.
func (d *Driver) change(ctx context.Context, leader core.Leader, c core.Campaign, what string, edit func(core.Campaign) core.Campaign) error {
	revision, err := d.Store.Update(ctx, what+" of "+string(c.Spec.ID), func(tx *store.Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		present, known, err := tx.Campaign(c.Spec.ID)
		if err != nil {
			return err
		}
		if !known || present.ModRevision != c.ModRevision {
			return errMoved
		}
		return errors.Join(tx.PutCampaign(edit(present)), tx.Audit(core.Audit{Actor: actor, Method: actor, Subject: "campaign " + string(c.Spec.ID), Reason: what}))
	})
	if err != nil {
		return err
	}
	_, err = d.View.WaitFor(ctx, revision)
	return err
}

// closeBooks settles every book of the campaign, one transaction each. A book that
// has its record is done.
func (d *Driver) closeBooks(ctx context.Context, leader core.Leader, c core.Campaign, report campaignreport.Report) error {
	var last int64
	for _, book := range d.View.Snapshot().Books(c.Spec.ID) {
		if book.Settled {
			continue
		}
		account, ok := report.Account(book.Key.SKU)
		if !ok || account.SaleLimit != book.SaleLimit.Int64() { // a limit moved behind the report: it is taken again
			return d.change(ctx, leader, c, "report taken again: "+book.Key.String()+" moved", func(present core.Campaign) core.Campaign {
				present.Archive = nil
				return present
			})
		}
		revision, err := d.closeBook(ctx, leader, c, book, account)
		if err != nil {
			return err
		}
		last = max(last, revision)
	}
	_, err := d.View.WaitFor(ctx, last)
	return err
}

// closeBook takes the limit out of the physical stock, and what is gone from its
// units, in the transaction that closes the book. The numbers are the report's.
func (d *Driver) closeBook(ctx context.Context, leader core.Leader, c core.Campaign, book core.Book, account undersell.Account) (int64, error) {
	gone, err := quantity.New(account.Confirmed + account.Of(undersell.WrittenOff))
	if err != nil {
		return 0, fmt.Errorf("%w: %s: %w", core.ErrBroken, book.Key, err)
	}
	object, _ := c.Report()
	moved, err := d.Store.Move(ctx, store.Move{
		RecordID: core.SettledRecordID(book.Key), Parameters: core.Digest("settled", book.Key.String()), Key: book.Key,
		Actor: actor, Method: actor, Reason: "settled by " + object.Name, Leader: &leader,
		Also: func(tx *store.Tx) error {
			present, known, err := tx.Campaign(c.Spec.ID)
			if err != nil {
				return err
			}
			if named, _ := present.Report(); !known || present.State != core.CampaignClosed || named != object {
				return errMoved
			}
			stock, _, err := tx.Stock(book.Key.SKU)
			if err != nil {
				return err
			}
			stock, changed, err := stock.Settle(c.Spec.ID, gone)
			if err != nil || !changed {
				return err
			}
			return tx.PutStock(stock)
		},
		Edit: func(present core.Book, _ map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			if present.SaleLimit != book.SaleLimit {
				return core.Book{}, nil, errMoved
			}
			next, err := present.Settle()
			return next, nil, err
		},
	})
	return moved.Revision, err
}

// archiveJournal puts the campaign's records into the archive and settles the
// campaign. Every book is closed: nothing begins a record any more.
func (d *Driver) archiveJournal(ctx context.Context, leader core.Leader, c core.Campaign) error {
	head, err := d.Store.Head(ctx)
	if err != nil {
		return err
	}
	s, err := d.View.WaitFor(ctx, head)
	if err != nil {
		return err
	}
	for _, book := range s.Books(c.Spec.ID) {
		if !book.Settled {
			return errMoved
		}
	}
	records := s.Records(c.Spec.ID, 0, everything)
	slices.Reverse(records) // oldest first
	parts, err := encodeJournal(c.Spec.ID, records)
	if err != nil {
		return err
	}
	objects := slices.Clone(c.Archive[:1])
	for i, content := range parts {
		object, err := d.Archive.Put(ctx, objectName(c.Spec.ID, fmt.Sprintf("journal-%04d", i+1), content), content)
		if err != nil {
			return err
		}
		objects = append(objects, object)
	}
	now := d.Clock.Now().UTC()
	err = d.change(ctx, leader, c, "settled", func(present core.Campaign) core.Campaign {
		next, _, stepErr := present.Step(core.EventSettle)
		if stepErr != nil {
			return present // not reached: the record is the one that was CLOSED
		}
		next.Archive, next.SettledAt = objects, now
		return next
	})
	if err == nil {
		d.Log.InfoContext(ctx, "campaign settled", telemetry.Event, "campaign_settled", telemetry.CampaignID, c.Spec.ID, "records", len(records), "objects", len(objects))
	}
	return err
}

// prune deletes from etcd what the archive holds, a bounded number of records per
// transaction. A record that is not exactly the archived one stays.
func (d *Driver) prune(ctx context.Context, leader core.Leader, c core.Campaign) error {
	s := d.View.Snapshot()
	if d.wasPruned(c.Spec.ID) || len(s.Records(c.Spec.ID, 0, 1)) == 0 {
		return nil
	}
	records, err := History{d.Archive}.Records(ctx, c, 0, everything)
	if err != nil {
		return err
	}
	var last int64
	for batch := range slices.Chunk(records, pruneBatch) {
		if last, err = d.drop(ctx, leader, c, batch); err != nil {
			return err
		}
	}
	if _, err := d.View.WaitFor(ctx, last); err != nil {
		return err
	}
	d.isPruned(c.Spec.ID) // what is left came after the archive, and stays
	return nil
}

func (d *Driver) drop(ctx context.Context, leader core.Leader, c core.Campaign, batch []core.Record) (int64, error) {
	return d.Store.Update(ctx, "prune "+string(c.Spec.ID), func(tx *store.Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		present, known, err := tx.Campaign(c.Spec.ID)
		if err != nil || !known || present.State != core.CampaignSettled {
			return errors.Join(err, errMoved)
		}
		for _, archived := range batch {
			record, found, err := tx.Record(archived.ID)
			if err != nil {
				return err
			}
			if !found || record.ModRevision != archived.ModRevision {
				continue
			}
			if err := tx.DropRecord(record.ID); err != nil {
				return err
			}
		}
		return nil
	})
}
