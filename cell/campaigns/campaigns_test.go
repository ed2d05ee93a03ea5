package campaigns

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

type source struct {
	rows   []shard.CampaignRow
	paused shard.Switch
	err    error
}

func (s *source) Switch(context.Context) (shard.Switch, error) { return s.paused, s.err }

func (s *source) Campaigns(context.Context) ([]shard.CampaignRow, error) { return s.rows, s.err }

func row(id string, version int64, edit func(*pb.CampaignRules)) shard.CampaignRow {
	rules := &pb.CampaignRules{
		State: pb.CampaignState_CAMPAIGN_STATE_PUBLISHED, Version: version,
		Spec: &pb.CampaignSpec{
			CampaignId: id, OpenAt: timestamppb.New(time.Unix(1000, 0)), CloseAt: timestamppb.New(time.Unix(2000, 0)),
			Skus: []*pb.SkuSpec{{SkuId: "a", Price: &pb.Money{Amount: "1.00", Currency: "CNY"}}, {SkuId: "b"}},
		},
	}
	if edit != nil {
		edit(rules)
	}
	return shard.CampaignRow{ID: ids.CampaignID(id), Version: version, Rules: rules}
}

func newReader(s Source) *Reader {
	return NewReader(s, time.Second, clock.NewManual(time.Unix(1500, 0)), slog.New(slog.DiscardHandler))
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestSnapshotFollowsTheShard(t *testing.T) {
	s := &source{rows: []shard.CampaignRow{row("c1", 1, func(r *pb.CampaignRules) { r.PausedSkus = []string{"b"}; r.FinalSkus = []string{"a"} })}}
	r := newReader(s)
	if _, ok := r.Ready(); ok {
		t.Fatal("ready before the first read")
	}
	changed := r.Changed()
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Ready(); !ok || !closed(changed) {
		t.Fatalf("ready %v, change told %v; want both", ok, closed(changed))
	}
	c, ok := r.Current().Campaign("c1")
	if !ok || !c.Sells() || !c.PerSKU {
		t.Fatalf("campaign = %+v, %v", c, ok)
	}
	a, _ := c.SKU("a")
	b, _ := c.SKU("b")
	if !a.Final || a.Paused || !b.Paused || b.Final || len(c.SKUs()) != 2 {
		t.Fatalf("a = %+v, b = %+v", a, b)
	}
	changed = r.Changed()
	if err := r.Refresh(t.Context()); err != nil || closed(changed) {
		t.Fatalf("the same rows were told as a change (err %v)", err)
	}
	s.rows[0] = row("c1", 2, func(r *pb.CampaignRules) { r.State = pb.CampaignState_CAMPAIGN_STATE_CLOSED })
	if err := r.Refresh(t.Context()); err != nil || !closed(changed) {
		t.Fatalf("a new version was not told (err %v)", err)
	}
	if c, _ = r.Current().Campaign("c1"); c.Sells() {
		t.Fatal("a closed campaign sells")
	}
}

// K43: a record that cannot be read hides no other.
func TestDamagedRulesHideNoOthers(t *testing.T) {
	r := newReader(&source{rows: []shard.CampaignRow{row("bad", 1, func(r *pb.CampaignRules) { r.Spec.OpenAt = nil }), row("good", 1, nil), {ID: "empty", Version: 1}}})
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := r.Current().All(); len(all) != 1 || all[0].ID != "good" || len(r.Current().Faults()) != 2 {
		t.Fatalf("campaigns %v, faults %v", all, r.Current().Faults())
	}
}

func TestFailedReadKeepsTheLastRules(t *testing.T) {
	s := &source{rows: []shard.CampaignRow{row("c", 1, nil)}}
	r := newReader(s)
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.err = errors.New("down")
	if err := r.Refresh(t.Context()); err == nil {
		t.Fatal("a failed read was no error")
	}
	if _, ok := r.Current().Campaign("c"); !ok {
		t.Fatal("the last rules were dropped")
	}
}
