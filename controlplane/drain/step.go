package drain

import (
	"fmt"
	"strings"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
)

// The steps of a drain, in their order.
const (
	StepReturns = "RETURNS"
	StepOrders  = "ORDERS"
	StepBuckets = "BUCKETS"
)

// Facts is what a drain stands on: the records, and the shard's rows.
type Facts struct {
	// Live: a process of the cell holds a lease.
	Live bool
	// Unread is why the shard could not be read; "": it was.
	Unread string
	// SKUs of campaigns that are not settled, in the order of their names.
	SKUs []SKU
	// Buckets of sales that are not over, in the order of their names.
	Buckets []Buckets
}

// SKU is one SKU that the cell has, or has orders of.
type SKU struct {
	Book core.Book
	// Gives: returns can be asked for. Not of a final SKU, nor of a sale that is over.
	Gives bool
	// Granted is the cell's allocation; Available and Reserved are the shard's words.
	Granted, Available, Reserved quantity.Quantity
	// Open is how many adjustments of it the cell has not decided.
	Open int
}

// Buckets are what the cell owns of one campaign; none owned: some are on their way to it.
type Buckets struct {
	Campaign string
	Owned    int
}

// Ask is a return to propose.
type Ask struct {
	Book  core.Book
	Units quantity.Quantity
}

// next is the outcome of step: Asks are proposed, then the operation waits at Step
// with Detail, or has nothing left to do.
type next struct {
	Asks   []Ask
	Step   string
	Detail string
	Done   bool
}

// step tells what comes next. Pure.
//
//	shard   open   available   reserved   buckets   next
//	silent                                          wait at RETURNS, with why
//	read    some               any        any       wait at RETURNS; ask where none is open
//	read    none   some        any        any       ask, wait at RETURNS
//	read    none   none        some       any       wait at ORDERS
//	read    none   none        none       some      wait at BUCKETS
//	read    none   none        none       none      done
//
// The detail of every wait names all that is in the way, not only what its step is
// about.
func step(f Facts) next {
	if f.Unread != "" {
		return next{Step: StepReturns, Detail: f.Unread}
	}
	var n next
	var available, reserved int64
	open := 0
	for _, s := range f.SKUs {
		reserved += s.Reserved.Int64()
		open += s.Open
		if !s.Gives {
			continue
		}
		units := quantity.Min(s.Available, s.Granted)
		available += units.Int64()
		if s.Open == 0 && !units.IsZero() {
			n.Asks = append(n.Asks, Ask{s.Book, units})
		}
	}
	switch {
	case open > 0 || available > 0:
		n.Step = StepReturns
	case reserved > 0:
		n.Step = StepOrders
	case len(f.Buckets) > 0:
		n.Step = StepBuckets
	default:
		return next{Done: true}
	}
	n.Detail = strings.Join(inTheWay(f, open, available, reserved), "; ")
	return n
}

// inTheWay lists what has to go.
func inTheWay(f Facts, open int, available, reserved int64) (out []string) {
	add := func(n int64, format string) {
		if n > 0 {
			out = append(out, fmt.Sprintf(format, n))
		}
	}
	if !f.Live && (open > 0 || available > 0 || reserved > 0) {
		out = append(out, "no process of the cell holds a lease: it gives nothing back and settles nothing; start one, or fence the cell")
	}
	add(int64(open), "%d adjustments have no answer from its shard")
	add(available, "%d units are available and are asked for")
	add(reserved, "%d units are in orders that can still be paid")
	return append(out, f.homes()...)
}

// namedHomes bounds the campaigns that a detail names.
const namedHomes = 8

// homes says of which campaigns the cell is home to users.
func (f Facts) homes() (out []string) {
	for i, b := range f.Buckets {
		if i == namedHomes {
			return append(out, fmt.Sprintf("and of %d campaigns more", len(f.Buckets)-i))
		}
		if b.Owned == 0 {
			out = append(out, fmt.Sprintf("buckets of campaign %s are being handed over to it: let that end, or let the cell sell again (cellctl cell drain --abort)", b.Campaign))
			continue
		}
		out = append(out, fmt.Sprintf("it is home to %d buckets of campaign %s: hand them over (cellctl route handover), or wait until the sale is over", b.Owned, b.Campaign))
	}
	return out
}
