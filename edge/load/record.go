package load

import (
	"fmt"
	"strconv"
	"time"

	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/edge/load/history"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
)

// record counts an answer and writes it to the history. body, when given, is the request in the answer.
func (v *visitor) record(r history.Record, start time.Time, a client.Answer, err error, body *client.Request) {
	r.Start, r.End = start.UnixMicro(), v.o.Clock.Now().UnixMicro()
	r.Campaign, r.SKU, r.User, r.Scope = v.o.Campaign, v.sku, v.user, v.plan.Scope
	if r.Scope == "" {
		r.Scope = v.sku
	}
	r.Status, r.Code, r.Unknown = a.Status, a.Code, err != nil
	if err != nil {
		r.Status = 0
	}
	if body != nil && err == nil && a.OK() {
		r.State, r.Reason, r.Reservation, r.Order = body.State, body.Reason, body.ReservationID, body.OrderID
		r.Cell, r.Fence = v.promisedBy(body)
	}
	v.meter.answer(answerKey(r))
	if r.Unknown {
		v.meter.tally(func(s *Snapshot) { s.Unknown++ })
	}
	if v.o.History != nil {
		v.o.History.Add(r)
	}
}

// promisedBy is the cell that accepted a request, and its fence version where the receipt can be opened.
func (v *visitor) promisedBy(body *client.Request) (cell string, fence int64) {
	if v.o.Receipts != nil && body.Receipt != "" {
		if receipt, err := signed.VerifyReceipt(body.Receipt, v.o.Receipts); err == nil {
			return string(receipt.Cell), receipt.Build.Fence
		}
	}
	if id, err := ids.ParseReservation(body.ReservationID); err == nil {
		return string(id.Cell()), 0
	}
	return "", 0
}

// answerKey is the name under which an answer is counted: few, never with an id.
func answerKey(r history.Record) string {
	switch {
	case r.Unknown:
		return string(r.Op) + " unknown"
	case r.Code != "":
		return fmt.Sprintf("%s %d %s", r.Op, r.Status, r.Code)
	case r.State != "":
		return fmt.Sprintf("%s %d %s", r.Op, r.Status, r.State)
	}
	return string(r.Op) + " " + strconv.Itoa(r.Status)
}
