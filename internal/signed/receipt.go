package signed

import (
	"errors"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/internal/ids"
)

// Receipt is what a 202 carries: proof that this request was admitted at that
// cell under that build. With it the request's status is never "not found", even
// when every row and mirror of it is gone. It is valid until its campaign is
// archived, so it has no expiry. At is kept to the millisecond.
type Receipt struct {
	User     ids.UserID
	Request  ids.RequestID
	Campaign ids.CampaignID
	SKU      ids.SKUID
	Cell     ids.CellID
	Build    ids.Build
	At       time.Time // of the admission, by the admitting store's clock
}

// Reservation is the reservation id that the admitted request has.
func (r Receipt) Reservation() ids.ReservationID {
	return ids.DeriveReservation(r.Campaign, r.SKU, r.User, r.Request, r.Cell, r.Build)
}

// Sign renders the receipt as a token under kid. A kid that keys do not hold is
// ErrUnknownKey; a field outside its grammar or no time is an error that names
// the field.
func (r Receipt) Sign(keys *KeySet, kid string) (string, error) {
	if err := r.check(); err != nil {
		return "", fmt.Errorf("sign a receipt: %w", err)
	}
	var w writer
	w.text(string(r.User))
	w.text(string(r.Request))
	w.text(string(r.Campaign))
	w.text(string(r.SKU))
	w.text(string(r.Cell))
	w.number(r.Build.Fence)
	w.number(r.Build.Count)
	w.time(r.At)
	return keys.signToken(kid, w.buf)
}

// VerifyReceipt reads a token that Sign made under one of keys; anything else is
// ErrInvalid. The caller compares user, campaign, SKU and request with the
// question asked.
func VerifyReceipt(token string, keys *KeySet) (Receipt, error) {
	payload, err := keys.openToken(token)
	if err != nil {
		return Receipt{}, err
	}
	in := reader{buf: payload}
	r := Receipt{
		User:     ids.UserID(in.text()),
		Request:  ids.RequestID(in.text()),
		Campaign: ids.CampaignID(in.text()),
		SKU:      ids.SKUID(in.text()),
		Cell:     ids.CellID(in.text()),
		Build:    ids.Build{Fence: in.number(), Count: in.number()},
		At:       in.time(),
	}
	if !in.complete() || r.check() != nil {
		return Receipt{}, ErrInvalid
	}
	return r, nil
}

func (r Receipt) check() error {
	_, errU := ids.ParseUserID(string(r.User))
	_, errQ := ids.ParseRequestID(string(r.Request))
	_, errC := ids.ParseCampaignID(string(r.Campaign))
	_, errS := ids.ParseSKUID(string(r.SKU))
	_, errL := ids.ParseCellID(string(r.Cell))
	_, errB := ids.ParseBuild(r.Build.String())
	var errA error
	if r.At.IsZero() {
		errA = errors.New("at: must be set")
	}
	return errors.Join(errU, errQ, errC, errS, errL, errB, errA)
}
