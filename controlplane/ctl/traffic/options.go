package traffic

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/edge/load"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/signed"
)

// ErrNoEdge means that the target names no edge.
var ErrNoEdge = errors.New("the platform has no edge")

// Options makes the generator's options for a campaign of a local platform. Close the client when
// done. target.ErrNotLocal.
func Options(t target.Target, clk clock.Clock, campaign string, conns int) (load.Options, error) {
	e, err := t.Endpoints()
	if err != nil {
		return load.Options{}, err
	}
	if len(t.Edges) == 0 {
		return load.Options{}, ErrNoEdge
	}
	secret, err := t.IdentitySecret()
	if err != nil {
		return load.Options{}, err
	}
	keys, err := signed.NewKeySet(signed.UsePayment, map[string][]byte{e.PaymentKeyID: []byte(e.PaymentSecret)})
	if err != nil {
		return load.Options{}, fmt.Errorf("payment key of the endpoints file: %w", err)
	}
	trusts, err := t.Trusts()
	if err != nil {
		return load.Options{}, err
	}
	c, err := client.New(client.Config{BaseURLs: t.Edges, Conns: conns, TLS: trusts})
	if err != nil {
		return load.Options{}, err
	}
	return load.Options{
		Client: c, Clock: clk, Campaign: campaign, Secret: secret,
		Issuer: platform.TokenIssuer, Audience: platform.TokenAudience, Payment: keys, PaymentKID: e.PaymentKeyID,
	}, nil
}

// SKUs asks an edge what a campaign sells.
func SKUs(ctx context.Context, c *client.Client, campaign string) ([]string, error) {
	out, a, err := c.Campaign(ctx, campaign)
	if err != nil {
		return nil, fmt.Errorf("campaign %s: %w", campaign, err)
	}
	if !a.OK() {
		return nil, fmt.Errorf("campaign %s: the edge answers %d %s: %s", campaign, a.Status, a.Code, a.Detail)
	}
	var skus []string
	for _, s := range out.SKUs {
		skus = append(skus, s.SKUID)
	}
	return skus, nil
}
