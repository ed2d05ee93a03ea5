package history

// subject is what the clients saw of one request, folded as records come.
type subject struct {
	scope    string
	quantity int32
	// promised: some answer was 202 or a replay's 200. fence and cell are of the newest receipt.
	promised bool
	fence    int64
	cell     string
	// uncertain: some attempt may have happened without a promise.
	uncertain bool
	// conflicting: the same id was sent with other parameters too; quantity is of the first.
	conflicting bool
	// reservations and orders that answers named.
	reservations []string
	orders       []string
	// paid and closed: some answer said so.
	paid, closed bool
	// rejected: the reason that an answer named as final.
	rejected string
	// notFound: a status asked with a receipt was 404.
	notFound bool
}

// fold takes one more record of the request.
func (s *subject) fold(r Record) {
	switch {
	case r.Op == OpRequest && r.Code == "IDEMPOTENCY_CONFLICT":
		s.conflicting = true
		return
	case r.Op == OpRequest:
		s.foldRequest(r)
	case r.Op == OpStatus && r.Receipt && r.Status == 404:
		s.notFound = true
	}
	if r.Status == 200 || r.Status == 202 {
		s.foldBody(r)
	}
}

func (s *subject) foldRequest(r Record) {
	if s.quantity == 0 {
		s.quantity = r.Quantity
	}
	switch {
	case r.accepted():
		s.promised = true
		s.quantity = r.Quantity
		if r.Cell != "" {
			s.cell, s.fence = r.Cell, r.Fence
		}
	case r.mayHaveHappened():
		s.uncertain = true
	}
}

func (s *subject) foldBody(r Record) {
	s.reservations = addOnce(s.reservations, r.Reservation)
	s.orders = addOnce(s.orders, r.Order)
	switch r.State {
	case "PAID":
		s.paid = true
	case "CLOSED":
		s.closed = true
	case "REJECTED":
		if finalReason(r.Reason) {
			s.rejected = r.Reason
		}
	}
}

// finalReason tells whether a rejection ends the request id for good. MOVED is decided anew by the
// new home; CELL_FENCED and LOST_ADMISSION without a row may be tried again under the same id.
func finalReason(reason string) bool {
	switch reason {
	case "", "MOVED", "CELL_FENCED", "LOST_ADMISSION":
		return false
	}
	return true
}

func addOnce(list []string, v string) []string {
	if v == "" {
		return list
	}
	for _, have := range list {
		if have == v {
			return list
		}
	}
	return append(list, v)
}
