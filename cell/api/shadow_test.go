package api

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/campaigns"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// shadowed is what a process has around it.
type shadowed struct {
	Mirror
	facts   admission.Facts
	version int64
	loaded  bool
	err     error
}

func (s *shadowed) Facts(context.Context, admission.Scope, ids.SKUID) (admission.Facts, error) {
	return s.facts, s.err
}

func (s *shadowed) Loaded(context.Context) (string, bool, error) { return "lib_v1", s.loaded, s.err }

func (s *shadowed) RulesVersion(context.Context, ids.CampaignID) (int64, error) {
	return s.version, s.err
}
func (s *shadowed) Inputs(ids.CampaignID, ids.SKUID) (string, float64, bool) { return "", 0, false }
func (s *shadowed) Switch(context.Context) (shard.Switch, error)             { return shard.Switch{}, nil }

func (s *shadowed) Campaigns(context.Context) ([]shard.CampaignRow, error) {
	return []shard.CampaignRow{{ID: "c", Version: 3, Rules: &pb.CampaignRules{
		State: pb.CampaignState_CAMPAIGN_STATE_PUBLISHED, Version: 3,
		Spec: &pb.CampaignSpec{
			CampaignId: "c", OpenAt: timestamppb.New(time.Unix(1, 0)), CloseAt: timestamppb.New(time.Unix(2, 0)),
			Skus: []*pb.SkuSpec{{SkuId: "s"}, {SkuId: "t"}},
		},
	}}}, nil
}

// TestShadow: each row spoils one thing that an admission would meet; that one is named.
func TestShadow(t *testing.T) {
	keys, err := signed.NewKeySet(signed.UsePermit, map[string][]byte{"k1": []byte(strings.Repeat("x", 32))})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name   string
		spoil  func(*shadowed, *Server)
		faults []string
	}{
		{"all is well", func(*shadowed, *Server) {}, nil},
		{"an older version is served", func(s *shadowed, _ *Server) { s.version = 4 }, []string{"serves version 3, the shard has 4"}},
		{"the library is lost", func(s *shadowed, _ *Server) { s.loaded = false }, []string{"Redis lacks the library lib_v1"}},
		{"the mirror is being built", func(s *shadowed, _ *Server) { s.facts.State = admission.Building }, []string{"SKU s: the mirror is being built", "SKU t: the mirror is being built"}},
		{"a process that does not admit", func(s *shadowed, p *Server) { s.loaded = false; p.set.Admits = false }, nil},
		{"not ready", func(_ *shadowed, p *Server) { p.Faults = func() []string { return []string{"shard"} } }, []string{"shard"}},
		{"nothing answers", func(s *shadowed, _ *Server) { s.err = errors.New("down") }, []string{
			"the shard does not answer: down", "Redis does not answer: down", "SKU s: the mirror does not answer: down", "SKU t: the mirror does not answer: down",
		}},
	} {
		s := &shadowed{version: 3, loaded: true, facts: admission.Facts{Present: true, State: admission.Ready, Build: ids.Build{Fence: 1, Count: 2}, Gate: pb.GateState_GATE_STATE_OPEN}}
		rules := campaigns.NewReader(s, time.Second, clock.System(), nil)
		if err := rules.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		p := New(Settings{Cell: "cell-1", Instance: "p1", Admits: true}, Deps{
			Rules: rules, Mirror: s, Gates: s, Library: s, Installed: s, Faults: func() []string { return nil }, Keys: []*signed.Ring{signed.NewRing(keys)},
		})
		row.spoil(s, p)
		got, err := p.Shadow(t.Context(), &pb.ShadowRequest{CampaignId: "c"})
		if err != nil || !slices.Equal(got.GetFaults(), row.faults) || !slices.Equal(got.GetKeys(), []string{"permit/k1"}) || got.GetServedVersion() != 3 || got.GetInstanceId() != "p1" {
			t.Errorf("%s: %v, %v; want faults %q", row.name, got, err, row.faults)
		}
		if row.faults == nil && p.set.Admits && (len(got.GetSkus()) != 2 || got.GetSkus()[0].GetBuild().GetCount() != 2 || got.GetSkus()[0].GetGate() != pb.GateState_GATE_STATE_OPEN) {
			t.Errorf("%s: SKUs %v", row.name, got.GetSkus())
		}
	}
	s := &shadowed{}
	p := New(Settings{}, Deps{Rules: campaigns.NewReader(s, time.Second, clock.System(), nil), Installed: s, Faults: func() []string { return nil }})
	if got, err := p.Shadow(t.Context(), &pb.ShadowRequest{CampaignId: "c"}); err != nil || !slices.Equal(got.GetFaults(), []string{"no rules of campaign c have come here"}) {
		t.Errorf("nobody told it: %v, %v", got, err)
	}
	if _, err := p.Shadow(t.Context(), &pb.ShadowRequest{CampaignId: "C C"}); err == nil {
		t.Error("a broken id is taken")
	}
}
