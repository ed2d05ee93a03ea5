package intent

import (
	"context"
	"errors"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
)

// Change is what every mutation of a campaign's record is given.
type Change struct {
	Campaign        ids.CampaignID
	OperationID     string
	ExpectedVersion int64 // 0: any
	ValidateOnly    bool
	Reason          string

	verb string // what is done
	to   string // to what of it; with the verb all that a repeat must match
	// tell is what the audit says of it, asked once it is decided; nil: to.
	tell func() string
}

// of gives the change with its verb.
func (c Change) of(verb, to string) Change {
	c.verb, c.to = verb, to
	return c
}

// decision is what a change comes to; changed false: the campaign is so already.
type decision func(tx *store.Tx, campaign core.Campaign) (next core.Campaign, changed bool, err error)

// change is one mutation of a campaign's record, in one transaction with its
// audit. A repeat of the record's last mutation answers the campaign as it stands;
// its id with other parameters is core.ErrIDReused. What is so already is answered
// before the expected version is compared: there is nothing to lose.
func (s *Service) change(ctx context.Context, who Caller, c Change, decide decision) (core.Campaign, error) {
	digest := core.Digest(c.verb, c.to, string(c.Campaign))
	var out core.Campaign
	revision, err := s.Store.Update(ctx, c.verb+" "+string(c.Campaign), func(tx *store.Tx) error {
		campaign, err := need(tx, c.Campaign)
		if err != nil {
			return err
		}
		out = campaign
		if repeat, err := campaign.Repeats(c.OperationID, digest); repeat || err != nil {
			return err
		}
		next, changed, err := decide(tx, campaign)
		if err != nil || !changed {
			return err
		}
		if c.ExpectedVersion != 0 && c.ExpectedVersion != campaign.Version {
			return core.VersionConflict(c.ExpectedVersion, campaign.Version)
		}
		if out = next.Stamped(c.OperationID, digest); c.ValidateOnly {
			return nil
		}
		return errors.Join(tx.PutCampaign(out), tx.Audit(who.audit(c.OperationID, "campaign "+string(c.Campaign), c.because())))
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}

// because tells what was done to what of it, and why: "pause phone-x: a wrong price".
func (c Change) because() string {
	what := c.to
	if c.tell != nil {
		what = c.tell()
	}
	text := strings.TrimSpace(c.verb + " " + what)
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}
