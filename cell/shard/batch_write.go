package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// write leaves everything that was decided, in one round trip; each count is compared before the
// commit.
func (r *batchRun) write(ctx context.Context) error {
	w := &writes{}
	w.queue("positions", 1, "position_advance", r.in.From.advanceArgs(r.out.Next, r.in.Epoch)...)
	r.queueDrops(w)
	if err := r.queueDecisions(w, "orders"); err != nil {
		return err
	}
	return r.tx.sendCounted(ctx, &w.batch, w.checks)
}

// writes are statements that travel together, with the rows that each of them must change.
type writes struct {
	batch  pgx.Batch
	checks []written
}

func (w *writes) queue(what string, want int, name string, args ...any) {
	w.batch.Queue(sql(name), args...)
	w.checks = append(w.checks, written{what, want})
}

// queueDrops gives up the places of those who did not fit.
func (r *batchRun) queueDrops(w *writes) {
	if len(r.gaveUp) > 0 {
		w.queue("buyers given up", len(r.gaveUp), "batch_buyers_drop", r.dropArgs()...)
	}
}

// queueDecisions records every decision: orders with their ledger entries, inbox rows and what leaves.
// source names the path in the ledger.
func (r *batchRun) queueDecisions(w *writes, source string) error {
	orders, recorded := r.count()
	out, err := r.effects()
	if err != nil {
		return err
	}
	if orders > 0 {
		args, m, err := r.orderArgs(orders)
		if err != nil {
			return err
		}
		for _, e := range m {
			r.tx.marks[skuKey{e.campaign, e.sku}]++
		}
		w.queue("ledger entries", orders, "stock_move", m.args(r.tx.writer.FenceVersion, source, "cell")...)
		if !r.store.reviewsKnown.Load() {
			w.queue("orders", orders, "batch_orders_insert_step4", args[:14]...)
		} else {
			w.queue("orders", orders, "batch_orders_insert", args...)
		}
		r.queueAttempts(w)
	}
	if recorded > 0 {
		args, err := outArgs(out)
		if err != nil {
			return err
		}
		w.queue("inbox rows", recorded, "batch_inbox_insert", r.inboxArgs(recorded)...)
		w.queue("outbox rows", len(out), "outbox_insert", args...)
	}
	return nil
}

// written is a statement's meant number of rows.
type written struct {
	what string
	want int
}

// sendCounted runs writes together and compares each one's rows with what was meant.
func (t tx) sendCounted(ctx context.Context, b *pgx.Batch, checks []written) error {
	return t.send(ctx, b, func(res pgx.BatchResults) error {
		for _, c := range checks {
			tag, err := res.Exec()
			if err != nil {
				return err
			}
			if err := exactly(c.what, tag.RowsAffected(), c.want); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *batchRun) count() (orders, recorded int) {
	for i := range r.out.Decisions {
		d := &r.out.Decisions[i]
		if d.Duplicate {
			continue
		}
		if d.Outcome == Ordered {
			orders++
		}
		recorded++
	}
	return orders, recorded
}

// orderArgs renders winners for batch_orders_insert and their ledger entries.
func (r *batchRun) orderArgs(n int) ([]any, moves, error) {
	text := make([][]string, 10)
	for c := range text {
		text[c] = make([]string, 0, n)
	}
	quantity, expires := make([]int32, 0, n), make([]time.Time, 0, n)
	fence, build := make([]int64, 0, n), make([]int64, 0, n)
	entries := make(moves, 0, n)
	for i := range r.out.Decisions {
		d, m := &r.out.Decisions[i], &r.in.Messages[i]
		if d.Outcome != Ordered {
			continue
		}
		total, err := m.Price.Times(m.Quantity)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrBadData, err)
		}
		for c, v := range []string{
			string(m.Reservation.Order()), string(m.Reservation), string(m.Request), string(m.Campaign), string(m.SKU), string(m.User),
			total.Amount(), total.Currency, m.DeviceID, m.Traceparent,
		} {
			text[c] = append(text[c], v)
		}
		quantity, expires = append(quantity, m.Quantity), append(expires, d.ExpiresAt)
		fence, build = append(fence, m.Build.Fence), append(build, m.Build.Count)
		entries = append(entries, move{
			campaign: m.Campaign, sku: m.SKU, action: actionReserve, businessNo: string(m.Reservation),
			available: -m.Quantity, reserved: m.Quantity,
		})
	}
	return []any{
		text[0], text[1], text[2], text[3], text[4], text[5], quantity, text[6], text[7], expires, fence, build, text[8], r.now, text[9],
	}, entries, nil
}

func (r *batchRun) inboxArgs(n int) []any {
	text := make([][]string, 8)
	for c := range text {
		text[c] = make([]string, 0, n)
	}
	quantity, admitted := make([]int32, 0, n), make([]time.Time, 0, n)
	offset, fence, build := make([]int64, 0, n), make([]int64, 0, n), make([]int64, 0, n)
	for i := range r.out.Decisions {
		d, m := &r.out.Decisions[i], &r.in.Messages[i]
		if d.Duplicate {
			continue
		}
		for c, v := range []string{
			string(m.Reservation), string(m.Request), string(m.Campaign), string(m.SKU), string(m.User), string(d.Outcome), string(d.Reason), m.Fingerprint,
		} {
			text[c] = append(text[c], v)
		}
		quantity, admitted = append(quantity, m.Quantity), append(admitted, m.AdmittedAt)
		offset, fence, build = append(offset, m.Offset), append(fence, m.Build.Fence), append(build, m.Build.Count)
	}
	return []any{
		text[0], text[1], text[2], text[3], text[4], quantity, text[5], text[6], text[7], offset, fence, build, admitted,
		r.in.From.Topic, r.in.From.Partition, r.tx.writer.FenceVersion, r.now,
	}
}
