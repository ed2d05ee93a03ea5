package ids

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strconv"
	"strings"
)

// ReservationID names one unit bound to one user: CELL ".r" and 26 base32 digits.
// It is derived, not drawn, so every process that sees the same request under
// the same build computes the same id, and it routes itself: the cell is in it.
type ReservationID string

// OrderID names the order of a reservation: the same text with ".o".
type OrderID string

// EntryID names one user's entry in the lottery of a SKU: CELL ".e" and 26 base32
// digits, derived from campaign, SKU, user and cell, so that a repeat is the same
// entry. It routes itself.
type EntryID string

const (
	digestDigits    = 26 // 130 bits of the SHA-256
	reservationMark = 'r'
	orderMark       = 'o'
	entryMark       = 'e'
	eventPrefix     = "reserve-"
)

// base32Lower is RFC 4648's alphabet in lower case: no digit can be mistaken for
// another after being read out over a telephone, and no case can be folded.
var base32Lower = base32.NewEncoding(base32Alphabet).WithPadding(base32.NoPadding)

const base32Alphabet = "abcdefghijklmnopqrstuvwxyz234567"

var base32Set = setOf(base32Alphabet)

// DeriveReservation computes the reservation id of a request at a cell under a
// build. The same arguments give the same id for ever; a change of any one of
// them gives another (each part is length-prefixed, so no two lists of parts
// run into the same bytes).
func DeriveReservation(campaign CampaignID, sku SKUID, user UserID, request RequestID, cell CellID, build Build) ReservationID {
	var text [48]byte
	digest := digestOf(string(campaign), string(sku), string(user), string(request),
		string(cell), string(build.AppendText(text[:0])))
	return ReservationID(string(cell) + "." + string(reservationMark) + digest)
}

// DeriveEntry computes the id of a user's entry at a cell.
func DeriveEntry(campaign CampaignID, sku SKUID, user UserID, cell CellID) EntryID {
	return EntryID(string(cell) + "." + string(entryMark) + digestOf("entry", string(campaign), string(sku), string(user), string(cell)))
}

// Cell is the cell that took the entry and answers for it.
func (id EntryID) Cell() CellID { return cellOf(string(id)) }

// ParseEntry reads an entry id; anything else is an *Error on entry_id.
func ParseEntry(s string) (EntryID, error) {
	if !isDerived(s, entryMark) {
		return "", &Error{Field: "entry_id", Rule: "must be an entry id that this platform gave out"}
	}
	return EntryID(s), nil
}

// Order is the id of the order that the reservation becomes. It only reads id,
// which must have come from DeriveReservation or ParseReservation.
func (id ReservationID) Order() OrderID { return OrderID(swapMark(string(id), orderMark)) }

// Cell is the cell that made the reservation and answers for it.
func (id ReservationID) Cell() CellID { return cellOf(string(id)) }

// Reservation is the id of the reservation that the order came from.
func (id OrderID) Reservation() ReservationID {
	return ReservationID(swapMark(string(id), reservationMark))
}

// Cell is the cell that holds the order.
func (id OrderID) Cell() CellID { return cellOf(string(id)) }

// EventID is the id of the message that carries an admission to the shard.
func EventID(id ReservationID) string { return eventPrefix + string(id) }

// ParseReservation reads a reservation id; anything else is an *Error on
// reservation_id.
func ParseReservation(s string) (ReservationID, error) {
	if !isDerived(s, reservationMark) {
		return "", &Error{Field: "reservation_id", Rule: "must be a reservation id that this platform gave out"}
	}
	return ReservationID(s), nil
}

// ParseOrder reads an order id; anything else is an *Error on order_id.
func ParseOrder(s string) (OrderID, error) {
	if !isDerived(s, orderMark) {
		return "", &Error{Field: "order_id", Rule: "must be an order id that this platform gave out"}
	}
	return OrderID(s), nil
}

// ParseEventID is the inverse of EventID; anything else is an *Error on event_id.
func ParseEventID(s string) (ReservationID, error) {
	rest, found := strings.CutPrefix(s, eventPrefix)
	if !found || !isDerived(rest, reservationMark) {
		return "", &Error{Field: "event_id", Rule: "must be reserve- and a reservation id"}
	}
	return ReservationID(rest), nil
}

// Fingerprint condenses the parameters of a request, all that a repeat under the
// same request id must agree on. Two requests with different parameters have
// different fingerprints; it is compared, never shown.
func Fingerprint(campaign CampaignID, sku SKUID, user UserID, quantity int32) string {
	return digestOf(string(campaign), string(sku), string(user), strconv.FormatInt(int64(quantity), 10))
}

// digestOf is the first 26 base32 digits of SHA-256 over the parts, each behind
// its length as four bytes big endian.
func digestOf(parts ...string) string {
	buf := make([]byte, 0, 384) // six parts at their usual sizes, in one allocation at most
	for _, p := range parts {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(p)))
		buf = append(buf, p...)
	}
	sum := sha256.Sum256(buf)
	return base32Lower.EncodeToString(sum[:])[:digestDigits]
}

// isDerived reports whether s is CELL "." mark DIGITS, exactly.
func isDerived(s string, mark byte) bool {
	cell, rest, found := strings.Cut(s, ".")
	if !found || cellGrammar.check(cell) != nil || len(rest) != 1+digestDigits || rest[0] != mark {
		return false
	}
	for i := 1; i < len(rest); i++ {
		if !base32Set[rest[i]] {
			return false
		}
	}
	return true
}

func swapMark(s string, mark byte) string {
	cell, rest, found := strings.Cut(s, ".")
	if !found || rest == "" {
		return ""
	}
	return cell + "." + string(mark) + rest[1:]
}

func cellOf(s string) CellID {
	cell, _, _ := strings.Cut(s, ".")
	return CellID(cell)
}
