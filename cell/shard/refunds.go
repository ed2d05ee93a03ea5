package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// refundsStep is the schema's step that has the table of refunds.
const refundsStep = 2

// DueRefund is a refund that the channel is to be asked for now.
type DueRefund struct {
	ID      string
	Order   ids.OrderID
	Payment ids.PaymentID
	Amount  reservation.Money
	Asks    int32         // this one included
	Age     time.Duration // since it was asked for here, by the database's clock
}

// RefundPace spaces the questions about one refund: First after the first, doubled with every one,
// at most Longest.
type RefundPace struct{ First, Longest time.Duration }

// ClaimRefunds takes up to limit refunds that are due and sets when they are due again, so that a
// process that dies behind its claim leaves them to the next one. A schema without refunds has none.
func (s *Store) ClaimRefunds(ctx context.Context, limit int, pace RefundPace) ([]DueRefund, error) {
	if !s.keepsRefunds {
		return nil, nil
	}
	var out []DueRefund
	err := s.inTx(ctx, "claim_refunds", needSettle, func(ctx context.Context, t tx) error {
		rows, err := t.Query(ctx, sql("refunds_claim"), min(limit, maxSteps), pace.First.Seconds(), pace.Longest.Seconds())
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, scanDueRefund)
		return err
	})
	return out, err
}

func scanDueRefund(row pgx.CollectableRow) (DueRefund, error) {
	var f DueRefund
	var amount, currency string
	var age float64
	err := row.Scan(&f.ID, &f.Order, &f.Payment, &amount, &currency, &f.Asks, &age)
	if err != nil {
		return f, err
	}
	f.Age = time.Duration(age * float64(time.Second))
	if f.Amount, err = reservation.ParseMoney(amount, currency); err != nil {
		return f, fmt.Errorf("refund %s: %w", f.ID, err)
	}
	return f, nil
}

// NoteRefundAnswers keeps what the channel last said about refunds that it has not carried out, by
// refund id, for whoever asks why one is stuck.
func (s *Store) NoteRefundAnswers(ctx context.Context, answers map[string]string) error {
	if len(answers) == 0 || !s.keepsRefunds {
		return nil
	}
	var id, answer []string
	for k, v := range answers {
		id, answer = append(id, k), append(answer, v)
	}
	return s.inTx(ctx, "note_refunds", needSettle, func(ctx context.Context, t tx) error {
		_, err := t.Exec(ctx, sql("refunds_answer"), id, answer)
		return err
	})
}

// AdoptRefunds gives up to limit payments that are to be refunded, and that an older program left
// without one, a refund row. It answers how many.
func (s *Store) AdoptRefunds(ctx context.Context, limit int) (int64, error) {
	if !s.keepsRefunds {
		return 0, nil
	}
	var n int64
	err := s.inTx(ctx, "adopt_refunds", needSettle, func(ctx context.Context, t tx) error {
		tag, err := t.Exec(ctx, sql("refunds_adopt"), limit)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}

// RefundBacklog is how many refunds have not ended, and the age of the oldest by the database's clock.
func (s *Store) RefundBacklog(ctx context.Context) (count int64, oldest time.Duration, err error) {
	if !s.keepsRefunds {
		return 0, 0, nil
	}
	var seconds float64
	err = s.pool.QueryRow(ctx, sql("refunds_backlog")).Scan(&count, &seconds)
	return count, time.Duration(seconds * float64(time.Second)), translate(err)
}

// PaidOrder is one paid order, and its place among its campaign's.
type PaidOrder struct {
	ID     ids.OrderID
	PaidAt time.Time
}

// PaidOrders reads a page of a campaign's paid orders in the order of their payment, from behind
// after; its zero value begins at the first.
func (s *Store) PaidOrders(ctx context.Context, campaign ids.CampaignID, after PaidOrder, limit int) ([]PaidOrder, error) {
	rows, err := s.pool.Query(ctx, sql("paid_of_campaign"), campaign, after.PaidAt, after.ID, limit)
	if err != nil {
		return nil, translate(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[PaidOrder])
	return out, translate(err)
}
