package store_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// largest is the proof of a cell with so many SKUs, a thousand to a campaign, every name, id and number as long as
// may be, and one adjustment by name of each.
func largest(skus int) core.Proof {
	q := quantity.Must(quantity.Max)
	const number = int64(1) << 40
	p := core.Proof{Cell: "cell-1", FenceVersion: 2, Evidence: core.EvidenceStoreFence, ShardIdentity: "7300000000000000000/12"}
	for n := range skus {
		key := core.BookKey{Campaign: ids.CampaignID(fmt.Sprintf("%063d", n/1_000)), SKU: ids.SKUID(fmt.Sprintf("%064d", n))}
		long := fmt.Sprintf("%0128d", n)
		p.Sealed = append(p.Sealed, core.SKUUnits{Key: key, Units: q})
		p.Stocks = append(p.Stocks, core.StockFacts{
			Key: key, Granted: q, Confirmed: q, Released: number, Version: number, AdjustmentVersion: number, LastNumber: number, LastAdjustmentID: long, BookRecordID: long,
		})
		p.Settled = append(p.Settled, core.SettledAdjustments{Key: key, FenceVersion: number, Count: number, Digest: []byte(strings.Repeat("d", 32))})
		p.Adjustments = append(p.Adjustments, core.AppliedAdjustment{ID: long, Key: key, Kind: core.KindGrant, Units: q, Outcome: core.OutcomeApplied, Step: core.Step{FenceVersion: number, Number: number}})
	}
	return p
}

func (p *platform) leads(t *testing.T) core.Leader {
	t.Helper()
	lease, err := p.GrantLease(testkit.Deadline(t), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	leader, err := p.TakeLead(testkit.Deadline(t), lease, "here", "t1")
	if err != nil {
		t.Fatal(err)
	}
	return leader
}

// A proof is never too large for etcd: a thousand SKUs with the longest names, and three campaigns of them, are
// stored in parts, read back whole, written over by a second try, and gone together.
func TestALargeProofIsStoredInParts(t *testing.T) {
	for _, skus := range []int{1_000, 3_000} {
		t.Run(fmt.Sprint(skus), func(t *testing.T) {
			p := open(t)
			ctx, proof, leader := testkit.Deadline(t), largest(skus), p.leads(t)
			if _, err := p.StageProof(ctx, core.Leader{}, proof); !errors.Is(err, core.ErrNotLeader) {
				t.Fatalf("parts without a leader: %v", err)
			}
			if _, err := p.StageProof(ctx, leader, proof); err != nil { // cut off before its record was put
				t.Fatal(err)
			}
			if _, err := p.Proof(ctx, "cell-1", 2); !errors.Is(err, core.ErrUnknownRecord) {
				t.Fatalf("parts alone are a proof: %v", err)
			}
			late, err := p.StageProof(ctx, leader, proof)
			if err != nil {
				t.Fatal(err)
			}
			own, err := p.StageProof(ctx, leader, proof)
			if err != nil || own.Parts < 2 {
				t.Fatalf("%d parts, %v", own.Parts, err)
			}
			put := func(which core.Proof) func(*store.Tx) error {
				return func(tx *store.Tx) error {
					_, _, err := tx.Proof("cell-1", 2)
					return errors.Join(err, tx.PutProof(which))
				}
			}
			if _, err := p.Update(ctx, "prove late", put(late)); !errors.Is(err, core.ErrRace) {
				t.Fatalf("a record whose parts were written over: %v", err)
			}
			if _, err := p.Update(ctx, "prove", put(own)); err != nil {
				t.Fatal(err)
			}
			got, err := p.Proof(ctx, "cell-1", 2)
			if got.ModRevision = 0; err != nil || !reflect.DeepEqual(got, proof) {
				t.Fatalf("came back with %d, %d, %d and %d rows: %v", len(got.Sealed), len(got.Stocks), len(got.Adjustments), len(got.Settled), err)
			}
			if _, err := p.StageProof(ctx, leader, proof); err != nil { // a late one changes nothing
				t.Fatal(err)
			}
			if again, err := p.Proof(ctx, "cell-1", 2); err != nil || len(again.Stocks) != skus {
				t.Fatalf("after a late try: %d stocks, %v", len(again.Stocks), err)
			}
			raw, err := p.client.Get(ctx, prefix+"/proofs/", clientv3.WithPrefix())
			if err != nil || len(raw.Kvs) != 1 || raw.Kvs[0].Value[0] == 0x01 {
				t.Errorf("a program that does not know of parts reads the record as a proof without rows: %v", err)
			}
			if _, err := p.Update(ctx, "drop", func(tx *store.Tx) error {
				_, _, err := tx.Proof("cell-1", 2)
				return errors.Join(err, tx.DropProof("cell-1", 2))
			}); err != nil {
				t.Fatal(err)
			}
			left, err := p.client.Get(ctx, prefix+"/proof", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil || left.Count != 0 {
				t.Errorf("%d keys are left, %v", left.Count, err)
			}
		})
	}
}

// More parts than are read again are refused by name, and nothing is written.
func TestAProofBeyondEveryBound(t *testing.T) {
	p := open(t)
	if _, err := p.StageProof(testkit.Deadline(t), p.leads(t), largest(50_000)); !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("%v", err)
	}
}
