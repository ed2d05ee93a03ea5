package campaignreport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/internal/ids"
)

// kind and schema of the archived document.
const (
	kind   = "final-report"
	schema = 2
)

// maxDetailed bounds the cells, over all SKUs, whose counts are told one by one: a
// campaign may have 100,000, and a report is one object of the archive and one message.
const maxDetailed = 5_000

// Make gives the report of accounts that were taken with their Totals. Pure.
func Make(result undersell.Result, now time.Time) (Report, error) {
	c := result.Side.Campaign
	spec, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(convert.Spec(c.Spec))
	if err != nil {
		return Report{}, fmt.Errorf("spec of %s: %w", c.Spec.ID, err)
	}
	var plain bytes.Buffer // protojson puts spaces by the program's build: the same report must have the same bytes
	if err := json.Compact(&plain, spec); err != nil {
		return Report{}, fmt.Errorf("spec of %s: %w", c.Spec.ID, err)
	}
	r := Report{
		Schema: schema, Kind: kind, Campaign: c.Spec.ID, Spec: plain.Bytes(), Owner: c.Owner, Published: c.PublishedAt,
		Ended: c.EndedAt().UTC(), Cancelled: c.CancelledBy, TakenAt: now.UTC(), SKUs: result.Accounts,
	}
	for _, book := range result.Side.Books {
		for _, a := range book.Allocations {
			r.cell(book.Key.SKU, a, result)
		}
		r.judge(book.Key.SKU)
	}
	slices.SortFunc(r.Unread, func(a, b Unread) int { return cmp.Compare(a.Cell, b.Cell) })
	r.Verdict = r.verdict()
	if len(r.Cells) > maxDetailed {
		r.shorten()
	}
	return r, nil
}

// shorten leaves the cells their stock rows, and tells the counts per SKU.
func (r *Report) shorten() {
	at := map[ids.SKUID]int{}
	for i := range r.Cells {
		c := &r.Cells[i]
		k, known := at[c.SKU]
		if !known {
			k = len(r.Counts)
			at[c.SKU], r.Counts = k, append(r.Counts, SKUCounts{SKU: c.SKU})
		}
		r.Counts[k].Counts = r.Counts[k].plus(c.Counts)
		c.Counts = Counts{}
	}
}

// cell adds one allocation's cell, or why nothing is known of it.
func (r *Report) cell(sku ids.SKUID, a core.Allocation, result undersell.Result) {
	if lost := !a.WrittenOff.IsZero() && a.WrittenOff == a.Granted; lost {
		r.unread(Unread{Cell: a.Cell, Why: "its shard is lost: what it held is written off", Lost: true})
		return
	}
	if err, silent := result.Unreachable[a.Cell]; silent {
		r.unread(Unread{Cell: a.Cell, Why: fmt.Sprint(err)})
		return
	}
	totals, read := result.Totals[a.Cell]
	if !read {
		if !a.Granted.IsZero() || a.LastNumber > 0 {
			r.unread(Unread{Cell: a.Cell, Why: "the control plane has no record of it"})
		}
		return // it never held a unit
	}
	i := slices.IndexFunc(totals.Stocks, func(s shards.StockTotals) bool { return s.SKU == string(sku) })
	out := Cell{Cell: a.Cell, SKU: sku, Allocated: a.Granted.Int64(), WrittenOff: a.WrittenOff.Int64(), Counts: counted(totals, string(sku))}
	if i >= 0 { // a shard without the row holds nothing of the SKU
		s := totals.Stocks[i]
		out.Stock = Stock{Granted: s.Granted, Available: s.Available, Reserved: s.Reserved, Confirmed: s.Confirmed, Released: s.Released, Entries: s.Entries}
		out.Reversals = s.Reversals
		r.judgeRow(out, s)
	}
	r.Cells = append(r.Cells, out)
	r.Orders.Paid += out.ordersOf("PAID")
	r.Orders.Closed += out.ordersOf("CLOSED")
}

func (r *Report) unread(u Unread) {
	if !slices.Contains(r.Unread, u) {
		r.Unread = append(r.Unread, u)
	}
}

// judgeRow holds one stock row against its ledger and its orders.
func (r *Report) judgeRow(c Cell, s shards.StockTotals) {
	broken := func(format string, args ...any) {
		r.Breaches = append(r.Breaches, Breach{SKU: c.SKU, Cell: c.Cell, Detail: fmt.Sprintf(format, args...)})
	}
	if s.Granted != s.Available+s.Reserved+s.Confirmed {
		broken("granted %d, available %d + reserved %d + confirmed %d", s.Granted, s.Available, s.Reserved, s.Confirmed)
	}
	if s.LedgerAvailable != s.Available || s.LedgerReserved != s.Reserved || s.LedgerConfirmed != s.Confirmed {
		broken("the ledger adds up to %d/%d/%d, the stock row is %d/%d/%d", s.LedgerAvailable, s.LedgerReserved, s.LedgerConfirmed, s.Available, s.Reserved, s.Confirmed)
	}
	if s.Reversals > 0 {
		return
	}
	if paid := c.unitsOf("PAID"); paid != s.Confirmed+s.TakenBack {
		broken("%d units in PAID orders; confirmed %d and %d restocked", paid, s.Confirmed, s.TakenBack)
	}
	if unpaid := c.unitsOf("PENDING_PAYMENT"); unpaid != s.Reserved {
		broken("%d units in unpaid orders; reserved %d", unpaid, s.Reserved)
	}
}

// judge asserts I10 of one SKU, and that its confirmed units are the cells'.
func (r *Report) judge(sku ids.SKUID) {
	a, known := r.Account(sku)
	if !known {
		r.Breaches = append(r.Breaches, Breach{SKU: sku, Detail: "it has a book and no account"})
		return
	}
	if a.Confirmed+a.Unsold() != a.SaleLimit {
		r.Breaches = append(r.Breaches, Breach{SKU: sku, Detail: fmt.Sprintf("sale_limit %d, confirmed %d + unsold %d", a.SaleLimit, a.Confirmed, a.Unsold())})
	}
	var confirmed int64
	for _, c := range r.Cells {
		if c.SKU == sku {
			confirmed += c.Stock.Confirmed
		}
	}
	if confirmed != a.Confirmed {
		r.Breaches = append(r.Breaches, Breach{SKU: sku, Detail: fmt.Sprintf("the account counts %d confirmed, the cells %d", a.Confirmed, confirmed)})
	}
}

func (r *Report) verdict() verify.Verdict {
	switch {
	case len(r.Breaches) > 0:
		return verify.Broken
	case slices.ContainsFunc(r.Unread, func(u Unread) bool { return !u.Lost }):
		return verify.VerdictNoWord
	}
	return verify.OK
}

// Encode gives the archived document.
func (r Report) Encode() ([]byte, error) { return json.Marshal(r) }

// Decode reads one back, of this schema or an older one. archive.ErrCorrupt names the
// object when it is none.
func Decode(object core.ArchiveObject, content []byte) (Report, error) {
	var r Report
	if err := json.Unmarshal(content, &r); err != nil {
		return Report{}, fmt.Errorf("%w: %s: %w", archive.ErrCorrupt, object.Name, err)
	}
	if r.Kind != kind || r.Schema < 1 || r.Schema > schema {
		return Report{}, fmt.Errorf("%w: %s: kind %q of schema %d", archive.ErrCorrupt, object.Name, r.Kind, r.Schema)
	}
	if r.Schema == 1 { // it judged nothing but the accounts, which hold or were not written
		r.Verdict = verify.OK
		for _, a := range r.SKUs {
			r.judgeAlone(a)
		}
	}
	return r, nil
}

// judgeAlone asserts I10 of an account that has no cells beside it.
func (r *Report) judgeAlone(a undersell.Account) {
	if a.Confirmed+a.Unsold() != a.SaleLimit {
		r.Breaches = append(r.Breaches, Breach{SKU: a.SKU, Detail: fmt.Sprintf("sale_limit %d, confirmed %d + unsold %d", a.SaleLimit, a.Confirmed, a.Unsold())})
		r.Verdict = verify.Broken
	}
}
