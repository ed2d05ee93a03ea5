package shards

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/totals_stocks.sql
var totalsStocksSQL string

//go:embed sql/totals_requests.sql
var totalsRequestsSQL string

//go:embed sql/totals_orders.sql
var totalsOrdersSQL string

//go:embed sql/totals_refunds.sql
var totalsRefundsSQL string

//go:embed sql/totals_findings.sql
var totalsFindingsSQL string

// Totals are one shard's sums of one campaign, all of one snapshot. A list without a row says
// that there is none: what could not be read is the error, never an empty list.
type Totals struct {
	Stocks   []StockTotals
	Requests []RequestTotals
	Orders   []OrderTotals
	Refunds  []RefundTotals
	Findings []FindingTotals
}

// StockTotals is a stock row beside what its ledger adds up to.
type StockTotals struct {
	SKU                                               string
	Granted, Available, Reserved, Confirmed, Released int64
	// The sums of the ledger's deltas; equal to the row's by I5.
	LedgerAvailable, LedgerReserved, LedgerConfirmed int64
	// TakenBack are confirmed units that a refund restocked or a REVERSAL took out.
	TakenBack int64
	// Reversals and Entries count ledger entries.
	Reversals, Entries int64
}

// RequestTotals counts inbox rows of one outcome and reason.
type RequestTotals struct {
	SKU, Outcome, Reason string
	Requests, Units      int64
}

// OrderTotals counts orders of one state and currency; Amount is an exact decimal.
type OrderTotals struct {
	SKU, State, Currency string
	Orders, Units        int64
	Amount               string
}

// RefundTotals counts refunds of one state, cause and currency; Amount is an exact decimal.
type RefundTotals struct {
	SKU, State, Cause, Currency string
	Refunds, Restocked          int64
	Amount                      string
}

// FindingTotals counts findings of one kind, state and action.
type FindingTotals struct {
	SKU, Kind, State, Action string
	Findings, Units          int64
}

// Totals reads them. It costs as much as the campaign's ledger and inbox are long. ErrUnreachable.
func (s *Snapshot) Totals(ctx context.Context, campaign string) (t Totals, err error) {
	if t.Stocks, err = collect(ctx, s, pgx.RowToStructByPos[StockTotals], totalsStocksSQL, campaign); err != nil {
		return Totals{}, err
	}
	if t.Requests, err = collect(ctx, s, pgx.RowToStructByPos[RequestTotals], totalsRequestsSQL, campaign); err != nil {
		return Totals{}, err
	}
	if t.Orders, err = collect(ctx, s, pgx.RowToStructByPos[OrderTotals], totalsOrdersSQL, campaign); err != nil {
		return Totals{}, err
	}
	if t.Refunds, err = collect(ctx, s, pgx.RowToStructByPos[RefundTotals], totalsRefundsSQL, campaign); err != nil {
		return Totals{}, err
	}
	if t.Findings, err = collect(ctx, s, pgx.RowToStructByPos[FindingTotals], totalsFindingsSQL, campaign); err != nil {
		return Totals{}, err
	}
	return t, nil
}
