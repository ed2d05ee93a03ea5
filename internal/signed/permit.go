package signed

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cellquota/cellquota/internal/ids"
)

// Permit is the short-lived right of one user to try for one SKU. It says nothing
// about stock. Times are kept to the millisecond.
type Permit struct {
	Campaign  ids.CampaignID
	SKU       ids.SKUID
	User      ids.UserID
	NotBefore time.Time // the campaign's opening; zero: at once
	Expires   time.Time // the first instant at which it is no longer good
	Nonce     string    // burnt by the one admission it leads to; NewNonce makes one
}

// NewNonce is 128 random bits as 26 characters of [a-z2-7]: safe in every key
// grammar and unique for all purposes.
func NewNonce() string { return strings.ToLower(rand.Text()) }

// Sign renders the permit as a token under kid. A kid that keys do not hold is
// ErrUnknownKey; a field outside its grammar, a nonce that NewNonce could not
// have made, or no expiry is an error that names the field.
func (p Permit) Sign(keys *KeySet, kid string) (string, error) {
	if err := p.check(); err != nil {
		return "", fmt.Errorf("sign a permit: %w", err)
	}
	var w writer
	w.text(string(p.Campaign))
	w.text(string(p.SKU))
	w.text(string(p.User))
	w.time(p.NotBefore)
	w.time(p.Expires)
	w.text(p.Nonce)
	return keys.signToken(kid, w.buf)
}

// VerifyPermit reads a token that Sign made under one of keys; anything else is
// ErrInvalid. The caller compares Expires (and NotBefore) with its own clock and
// the subject with the verified identity.
func VerifyPermit(token string, keys *KeySet) (Permit, error) {
	payload, err := keys.openToken(token)
	if err != nil {
		return Permit{}, err
	}
	r := reader{buf: payload}
	p := Permit{
		Campaign:  ids.CampaignID(r.text()),
		SKU:       ids.SKUID(r.text()),
		User:      ids.UserID(r.text()),
		NotBefore: r.time(),
		Expires:   r.time(),
		Nonce:     r.text(),
	}
	if !r.complete() || p.check() != nil {
		return Permit{}, ErrInvalid
	}
	return p, nil
}

func (p Permit) check() error {
	_, errC := ids.ParseCampaignID(string(p.Campaign))
	_, errS := ids.ParseSKUID(string(p.SKU))
	_, errU := ids.ParseUserID(string(p.User))
	var errN, errE error
	if !isNonce(p.Nonce) {
		errN = errors.New("nonce: must be 26 of a-z and 2-7")
	}
	if p.Expires.IsZero() {
		errE = errors.New("expires: must be set")
	}
	return errors.Join(errC, errS, errU, errN, errE)
}

func isNonce(s string) bool {
	return len(s) == 26 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '2' || r > '7')
	})
}
