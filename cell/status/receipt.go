package status

import (
	"time"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// receipt verifies the token of a question; nil without one. A receipt of another request is ErrReceipt.
func (a *Answerer) receipt(q Query) (*signed.Receipt, error) {
	if q.Receipt == "" {
		return nil, nil
	}
	r, err := signed.VerifyReceipt(q.Receipt, a.keys.Keys())
	if err != nil || r.User != q.User || r.Request != q.Request || r.Campaign != q.Scope.Campaign || r.SKU != q.SKU || r.Cell != a.cfg.Cell {
		return nil, ErrReceipt
	}
	return &r, nil
}

// Sign makes the receipt of an accepted request under the key that signs now; empty when it cannot be
// made (no key): the answer is worth more than its receipt.
func (a *Answerer) Sign(q Query, build ids.Build, at time.Time) string {
	keys, kid := a.keys.Signer(a.clock.Now())
	if kid == "" {
		return ""
	}
	token, err := signed.Receipt{User: q.User, Request: q.Request, Campaign: q.Scope.Campaign, SKU: q.SKU, Cell: a.cfg.Cell, Build: build, At: at}.Sign(keys, kid)
	if err != nil {
		return ""
	}
	return token
}

// withReceipt adds the receipt of an accepted request to its view.
func (a *Answerer) withReceipt(q Query, v *pb.RequestView, build ids.Build) *pb.RequestView {
	if v.GetReceipt() == "" && v.GetAdmittedAtMs() > 0 && build.Fence > 0 {
		v.Receipt = a.Sign(q, build, time.UnixMilli(v.GetAdmittedAtMs()))
	}
	return v
}
