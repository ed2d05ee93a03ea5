package demo

import (
	"fmt"

	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Row is where a cell's units are at the end: the book's word and the shard's.
type Row struct {
	Cell string `json:"cell_id"`
	// Allocated is the book's; the rest is the shard's.
	Allocated  int64 `json:"allocated"`
	Granted    int64 `json:"granted"`
	Available  int64 `json:"available"`
	Reserved   int64 `json:"reserved"`
	Confirmed  int64 `json:"confirmed"`
	WrittenOff int64 `json:"written_off"`
	// Unreachable says why the shard's word is missing.
	Unreachable string `json:"unreachable,omitempty"`
}

// Ledger is the end table of one SKU.
type Ledger struct {
	SaleLimit int64 `json:"sale_limit"`
	Reserve   int64 `json:"reserve"`
	Rows      []Row `json:"cells"`
	Total     Row   `json:"total"`
}

// ledgerOf lays the book of one SKU and the shards' stock rows side by side.
func ledgerOf(sales *pb.GetSalesResponse, sku string) (Ledger, error) {
	var l Ledger
	at := map[string]int{}
	for _, b := range sales.GetBooks() {
		if b.GetSkuId() != sku {
			continue
		}
		l.SaleLimit, l.Reserve = int64(b.GetSaleLimit()), int64(b.GetReserve())
		for _, a := range b.GetAllocations() {
			at[a.GetCellId()] = len(l.Rows)
			l.Rows = append(l.Rows, Row{Cell: a.GetCellId(), Allocated: int64(a.GetGranted()), WrittenOff: int64(a.GetWrittenOff())})
		}
	}
	if l.SaleLimit == 0 {
		return l, fmt.Errorf("no book of %s was answered", sku)
	}
	for _, s := range sales.GetStocks() {
		i, ok := at[s.GetCellId()]
		if !ok || s.GetUnreachable() == "" && s.GetStock().GetSkuId() != sku {
			continue
		}
		r := &l.Rows[i]
		r.Unreachable = s.GetUnreachable()
		r.Granted, r.Available = int64(s.GetStock().GetGranted()), int64(s.GetStock().GetAvailable())
		r.Reserved, r.Confirmed = int64(s.GetStock().GetReserved()), int64(s.GetStock().GetConfirmed())
	}
	l.Total.Cell = "all cells"
	for _, r := range l.Rows {
		l.Total.Allocated += r.Allocated
		l.Total.Granted += r.Granted
		l.Total.Available += r.Available
		l.Total.Reserved += r.Reserved
		l.Total.Confirmed += r.Confirmed
		l.Total.WrittenOff += r.WrittenOff
	}
	return l, nil
}

// sums are the two sums of the table in words: the book's and the shards'.
func (l Ledger) sums() []string {
	t := l.Total
	return []string{
		fmt.Sprintf("book                                 reserve %d + allocated %d = %d", l.Reserve, t.Allocated, l.Reserve+t.Allocated),
		fmt.Sprintf("shards                               reserve %d + available %d + reserved %d + confirmed %d + written off %d = %d",
			l.Reserve, t.Available, t.Reserved, t.Confirmed, t.WrittenOff, l.Reserve+t.Available+t.Reserved+t.Confirmed+t.WrittenOff),
	}
}

// faults names every sum that does not hold at the end, when nothing is under way any more: each row,
// then the columns. What a shard did not say cannot be summed and is not named here.
func (l Ledger) faults() (list []string) {
	whole := true
	for _, r := range l.Rows {
		if r.Unreachable != "" {
			whole = false
			continue
		}
		if r.Granted != r.Available+r.Reserved+r.Confirmed {
			list = append(list, fmt.Sprintf("%s: granted %d is not available %d + reserved %d + confirmed %d", r.Cell, r.Granted, r.Available, r.Reserved, r.Confirmed))
		}
		if r.Granted+r.WrittenOff != r.Allocated {
			list = append(list, fmt.Sprintf("%s: the book allocates %d (%d of it written off), the shard holds %d", r.Cell, r.Allocated, r.WrittenOff, r.Granted))
		}
	}
	if sum := l.Reserve + l.Total.Allocated; sum != l.SaleLimit {
		list = append(list, fmt.Sprintf("reserve %d + allocated %d = %d, the limit is %d", l.Reserve, l.Total.Allocated, sum, l.SaleLimit))
	}
	if sum := l.Reserve + l.Total.Granted + l.Total.WrittenOff; whole && sum != l.SaleLimit {
		list = append(list, fmt.Sprintf("reserve %d + granted %d + written off %d = %d, the limit is %d", l.Reserve, l.Total.Granted, l.Total.WrittenOff, sum, l.SaleLimit))
	}
	if sum := l.Reserve + l.Total.Available + l.Total.Reserved + l.Total.Confirmed + l.Total.WrittenOff; whole && sum != l.SaleLimit {
		list = append(list, fmt.Sprintf("reserve %d + available %d + reserved %d + confirmed %d + written off %d = %d, the limit is %d",
			l.Reserve, l.Total.Available, l.Total.Reserved, l.Total.Confirmed, l.Total.WrittenOff, sum, l.SaleLimit))
	}
	return list
}
