package convert_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Every enum of core has its namesake's numbers and names.
func TestEnumsAreTheWires(t *testing.T) {
	same(t, core.CellStates(), pb.CellState(0).Descriptor())
	same(t, core.CampaignStates(), pb.CampaignState(0).Descriptor())
	same(t, core.Kinds(), pb.AdjustmentKind(0).Descriptor())
	same(t, core.Outcomes(), pb.AdjustmentOutcome(0).Descriptor())
	same(t, core.JournalStates(), pb.JournalState(0).Descriptor())
	same(t, core.OperationStates(), pb.OperationState(0).Descriptor())
	same(t, core.ApprovalStates(), pb.ApprovalState(0).Descriptor())
	same(t, core.Evidences(), pb.Evidence(0).Descriptor())
	same(t, core.Modes(), pb.CampaignMode(0).Descriptor())
	same(t, core.Admissions(), pb.AdmissionMode(0).Descriptor())
	same(t, core.Scopes(), pb.PurchaseScope(0).Descriptor())
	same(t, core.Acks(), pb.AckMode(0).Descriptor())
	same(t, core.Refunds(), pb.RefundRule(0).Descriptor())
	same(t, core.LeaseLosses(), pb.OnLeaseLoss(0).Descriptor())
	same(t, core.Reclaims(), pb.ReclaimPolicy(0).Descriptor())
	same(t, core.Routings(), pb.RoutingMode(0).Descriptor())
	same(t, core.Inventories(), pb.InventoryMode(0).Descriptor())
	same(t, core.BucketMoveStates(), pb.BucketMoveState(0).Descriptor())
	same(t, core.Autos(), pb.AutoPolicy(0).Descriptor())
	same(t, allocator.Policies(), pb.SplitPolicy(0).Descriptor())
}

func same[T interface {
	~uint8
	String() string
}](t *testing.T, ours []T, theirs protoreflect.EnumDescriptor,
) {
	t.Helper()
	values := theirs.Values()
	prefix := strings.TrimSuffix(string(values.Get(0).Name()), "UNSPECIFIED")
	if len(ours) != values.Len()-1 {
		t.Errorf("%s has %d values, core has %d", theirs.Name(), values.Len()-1, len(ours))
	}
	for _, v := range ours {
		w := values.ByNumber(protoreflect.EnumNumber(v))
		if w == nil || string(w.Name()) != prefix+v.String() {
			t.Errorf("%s: core's %s has number %d, the wire's is %v", theirs.Name(), v, v, w)
		}
	}
}

func units(t *rapid.T, label string) quantity.Quantity {
	return quantity.Must(rapid.Int64Range(0, quantity.Max).Draw(t, label))
}

func instant(t *rapid.T, label string) time.Time {
	return time.Unix(rapid.Int64Range(1, 4e9).Draw(t, label), rapid.Int64Range(0, 999_999_999).Draw(t, label+" ns")).UTC()
}

func drawSpec(t *rapid.T) core.CampaignSpec {
	s := core.CampaignSpec{
		ID: ids.CampaignID(rapid.StringMatching(`[a-z0-9-]{1,63}`).Draw(t, "campaign")), DisplayJSON: rapid.String().Draw(t, "display"),
		OpenAt: instant(t, "open"), CloseAt: instant(t, "close"),
		Mode: rapid.SampledFrom(core.Modes()).Draw(t, "mode"), Admission: rapid.SampledFrom(core.Admissions()).Draw(t, "admission"),
		Scope: rapid.SampledFrom(core.Scopes()).Draw(t, "scope"), MaxQuantity: rapid.Int32().Draw(t, "max"), HoldFor: time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "ttl")),
		Ack: rapid.SampledFrom(core.Acks()).Draw(t, "ack"), Refund: rapid.SampledFrom(core.Refunds()).Draw(t, "refund"),
		OnLeaseLoss: rapid.SampledFrom(core.LeaseLosses()).Draw(t, "loss"), Reclaim: rapid.SampledFrom(core.Reclaims()).Draw(t, "reclaim"),
		Routing: rapid.SampledFrom(core.Routings()).Draw(t, "routing"),
		Permits: core.PermitRules{ClaimFrom: instant(t, "claim"), TTL: time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "permit ttl"))},
		Eligibility: core.Eligibility{
			Claims: []core.ClaimRule{{Claim: "account_status", Values: []string{"active"}}}, DenyRiskTiers: []string{"blocked"},
		},
		Holds: core.Holds{MaxUnpaidPerUser: rapid.Int32().Draw(t, "holds"), PaymentTTLByRisk: map[string]time.Duration{"high": time.Minute}},
		Gate:  core.Gate{MaxWait: time.Second, MarginPermille: rapid.Int32().Draw(t, "margin"), BaselineRPS: 3},
		Cells: []ids.CellID{"cell-1", "cell-2"},
	}
	if rapid.Bool().Draw(t, "limits") {
		s.Limits = &core.Limits{User: &core.Rate{Milli: rapid.Int64().Draw(t, "rate"), Burst: 5}, Claims: map[string]core.Rate{"x": {Milli: 1, Burst: 2}}}
	}
	if rapid.Bool().Draw(t, "lottery") {
		s.Lottery = &core.LotteryRules{EntryOpenAt: instant(t, "entry open"), EntryCloseAt: instant(t, "entry close"), Tiers: map[string]int32{"gold": rapid.Int32().Draw(t, "tickets")}}
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "skus") {
		s.SKUs = append(s.SKUs, core.SKUSpec{
			ID: ids.SKUID(fmt.Sprint("sku", i)), PhysicalStock: units(t, "stock"), SaleLimit: units(t, "limit"), Inventory: rapid.SampledFrom(core.Inventories()).Draw(t, "inventory"),
			Price: core.Money{Amount: "1.00", Currency: "CNY"}, Reserve: units(t, "reserve"),
			Split: core.SplitRules{
				Policy:  rapid.SampledFrom(allocator.Policies()).Draw(t, "policy"),
				Weights: map[ids.CellID]uint32{"cell-1": rapid.Uint32Range(0, core.MaxWeight).Draw(t, "weight")},
				Units:   map[ids.CellID]quantity.Quantity{"cell-2": units(t, "explicit")},
			},
			TopUp: core.TopUpRules{Policy: rapid.SampledFrom(core.Autos()).Draw(t, "auto"), LowWaterPermille: 100, TranchePermille: 50}, Rebalance: core.AutoManual,
		})
	}
	return s
}

func TestSpecGoesThereAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		raw, err := proto.Marshal(convert.Spec(s))
		if err != nil && strings.Contains(err.Error(), "UTF-8") {
			return
		}
		var back pb.CampaignSpec
		if err != nil || proto.Unmarshal(raw, &back) != nil {
			t.Fatalf("wire: %v", err)
		}
		got, err := convert.FromSpec(&back)
		if err != nil || !reflect.DeepEqual(got, s) {
			t.Fatalf("came back as %+v, %v\nwant %+v", got, err, s)
		}
	})
}

func TestAdjustmentGoesThereAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := core.Adjustment{
			ID: "a", Key: core.BookKey{Campaign: "c", SKU: "s"}, Cell: "cell-1", Kind: rapid.SampledFrom(core.Kinds()).Draw(t, "kind"), Units: units(t, "units"),
			State: rapid.SampledFrom(core.JournalStates()).Draw(t, "state"), Outcome: rapid.SampledFrom(append(core.Outcomes(), 0)).Draw(t, "outcome"),
			Step: core.Step{FenceVersion: rapid.Int64().Draw(t, "fence"), Number: rapid.Int64().Draw(t, "number")}, Actor: "me", Reason: "why",
			CreatedAt: instant(t, "at"), Evidence: core.EvidenceStoreFence,
		}
		if got, err := convert.FromAdjustment(convert.Adjustment(a)); err != nil || got != a {
			t.Fatalf("came back as %+v, %v, want %+v", got, err, a)
		}
	})
}

func TestRouteGoesThereAndBack(t *testing.T) {
	homes, err := allocator.DealBuckets([]allocator.CellWeight{{Cell: "b", Weight: 2}, {Cell: "a", Weight: 3}, {Cell: "c", Weight: 1}}, allocator.Buckets)
	if err != nil {
		t.Fatal(err)
	}
	homes, _, err = homes.HandOver("a", "c", 10, 20)
	if err != nil {
		t.Fatal(err)
	}
	ordered, _, err := core.Route{Campaign: "d", Version: 7, Domains: []core.DomainRoute{{Domain: "east", Homes: homes}}}.Order("east", "a", "b", 5, 30, time.UnixMilli(1_800_000_000_123))
	if err != nil || len(ordered.Domains[0].Moves[0].Ranges) != 2 {
		t.Fatal(ordered, err)
	}
	want := ordered.Domains
	got, err := convert.FromDomains(convert.Domains(want))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("came back as %v, %v", got, err)
	}
	if own := convert.CellDomains(want, "c"); len(own) != 1 || len(own[0].Ranges) != 2 || own[0].Domain != "east" {
		t.Errorf("cell c owns %v", own)
	}
	if own := convert.CellDomains(want, "nobody"); own != nil {
		t.Errorf("a cell without buckets owns %v", own)
	}
}

// K43: what a wire message cannot mean is an error or refused by Check, never
// another number.
func TestForeignNumbersAreRefused(t *testing.T) {
	good := convert.Spec(core.CampaignSpec{SKUs: []core.SKUSpec{{ID: "s"}}})
	good.Skus[0].SaleLimit = -5
	if _, err := convert.FromSpec(good); err == nil {
		t.Error("a sale limit of -5 was read")
	}
	if _, err := convert.FromAdjustment(&pb.Adjustment{Units: 1_000_000_001}); err == nil {
		t.Error("1000000001 units were read")
	}
	if a, _ := convert.FromAdjustment(&pb.Adjustment{AdjustmentId: "a", CellId: "c", Kind: 257, State: 1}); a.Check() == nil {
		t.Errorf("kind 257 was read as %s", a.Kind)
	}
	if _, err := convert.FromDomains([]*pb.DomainRoute{{Cells: []*pb.CellBuckets{{CellId: "a", Buckets: &pb.DomainBuckets{Ranges: []*pb.BucketRange{{BucketFrom: 0, BucketTo: 65536 + 4095}}}}}}}); err == nil {
		t.Error("a range up to 69631 was read")
	}
	whole := []*pb.CellBuckets{{CellId: "a", Buckets: &pb.DomainBuckets{Ranges: []*pb.BucketRange{{BucketTo: 4095}}}}}
	if _, err := convert.FromDomains([]*pb.DomainRoute{{Cells: whole, Moves: []*pb.BucketMove{{Buckets: &pb.DomainBuckets{Ranges: []*pb.BucketRange{{BucketFrom: -1}}}}}}}); err == nil {
		t.Error("a move of bucket -1 was read")
	}
	if s, err := convert.FromSpec(nil); err != nil || len(s.Check()) == 0 {
		t.Errorf("a blank spec passes: %v", err)
	}
	if c := convert.FromCellSpec(nil); len(c.Check()) == 0 {
		t.Error("a blank cell passes")
	}
}
