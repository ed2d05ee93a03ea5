package api

import (
	"context"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/cell/campaigns"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Shadow implements CellFactsService: what an admission of the campaign would meet
// in this process, step by step, and nothing taken. A campaign that nobody
// told this process of is no error: preflight wants to hear just that.
func (s *Server) Shadow(ctx context.Context, in *pb.ShadowRequest) (*pb.ShadowResponse, error) {
	var bad violations
	id := parse(&bad, ids.ParseCampaignID, in.GetCampaignId())
	if err := bad.err(); err != nil {
		return nil, err
	}
	out := &pb.ShadowResponse{InstanceId: s.set.Instance, Keys: s.kids(), Faults: s.Faults()}
	fault := func(format string, args ...any) { out.Faults = append(out.Faults, fmt.Sprintf(format, args...)) }
	c, served := s.Rules.Current().Campaign(id)
	if served {
		out.ServedVersion = c.Version
	}
	s.shadowRules(ctx, id, out, fault)
	if !s.set.Admits { // relays, orders, closes: no customer comes here
		return out, nil
	}
	if !served || !c.Direct {
		s.shadowLibrary(ctx, out, fault)
	}
	if served {
		s.shadowSKUs(ctx, c, out, fault)
	}
	return out, nil
}

func (s *Server) shadowRules(ctx context.Context, id ids.CampaignID, out *pb.ShadowResponse, fault func(string, ...any)) {
	var err error
	if s.Installed != nil {
		out.Version, err = s.Installed.RulesVersion(ctx, id)
	}
	switch {
	case err != nil:
		fault("the shard does not answer: %v", err)
	case out.Version == 0 && out.ServedVersion == 0:
		fault("no rules of campaign %s have come here", id)
	case out.ServedVersion < out.Version:
		fault("serves version %d, the shard has %d", out.ServedVersion, out.Version)
	}
}

func (s *Server) shadowLibrary(ctx context.Context, out *pb.ShadowResponse, fault func(string, ...any)) {
	if s.Library == nil {
		fault("nobody can tell of the library")
		return
	}
	var err error
	if out.Library, out.LibraryLoaded, err = s.Library.Loaded(ctx); err != nil {
		fault("Redis does not answer: %v", err)
	} else if !out.LibraryLoaded {
		fault("Redis lacks the library %s", out.Library)
	}
}

func (s *Server) shadowSKUs(ctx context.Context, c *campaigns.Campaign, out *pb.ShadowResponse, fault func(string, ...any)) {
	for _, sku := range c.SKUs() {
		g := s.gate(ctx, c, sku.ID)
		row := &pb.ShadowSku{SkuId: string(sku.ID), MirrorReady: g.GetBuild() != nil || c.Direct && g.GetCause() != "", Build: g.GetBuild(), Gate: g.GetState(), Cause: g.GetCause()}
		if !row.MirrorReady {
			fault("SKU %s: %s", sku.ID, g.GetCause())
		}
		out.Skus = append(out.Skus, row)
	}
}

// kids names the keys whose bytes this process has, "USE/KID", sorted.
func (s *Server) kids() []string {
	var out []string
	for _, ring := range s.Keys {
		out = append(out, ring.Names()...)
	}
	slices.Sort(out)
	return out
}
