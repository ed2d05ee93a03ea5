package permit

import (
	"errors"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
)

// ErrInvalid refuses a permit, whatever is wrong with it.
var ErrInvalid = errors.New("permit is not valid")

// Office gives out permits and checks them. It is safe for concurrent use.
type Office struct {
	ring  *signed.Ring
	clock clock.Clock
}

// New returns an office that works with the ring of use permit; the clock says which key has begun
// to sign.
func New(ring *signed.Ring, c clock.Clock) *Office { return &Office{ring, c} }

// Issue makes a permit for [notBefore, expires). It fails only when no key is left to sign with.
func (o *Office) Issue(campaign ids.CampaignID, sku ids.SKUID, user ids.UserID, notBefore, expires time.Time) (string, error) {
	keys, kid := o.ring.Signer(o.clock.Now())
	token, err := signed.Permit{
		Campaign: campaign, SKU: sku, User: user, NotBefore: notBefore, Expires: expires, Nonce: signed.NewNonce(),
	}.Sign(keys, kid)
	if err != nil {
		return "", fmt.Errorf("permit: sign: %w", err)
	}
	return token, nil
}

// Check reads a permit and reports whether it is this user's for this SKU; else ErrInvalid. Its
// expiry is not looked at.
func (o *Office) Check(token string, campaign ids.CampaignID, sku ids.SKUID, user ids.UserID) (signed.Permit, error) {
	p, err := signed.VerifyPermit(token, o.ring.Keys())
	if err != nil || p.Campaign != campaign || p.SKU != sku || p.User != user {
		return signed.Permit{}, ErrInvalid
	}
	return p, nil
}
