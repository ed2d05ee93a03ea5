package link

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func writer(version int64) shard.Writer { return shard.Writer{FenceVersion: version, Group: group} }

func (p *process) exec(sql string, args ...any) {
	p.t.Helper()
	_, err := p.admin.Exec(p.ctx, sql, args...)
	p.must(err)
}

func (p *process) scan(sql string, to ...any) {
	p.t.Helper()
	p.must(p.admin.QueryRow(p.ctx, sql).Scan(to...))
}

// mirrorOf installs a mirror of the phone with 10 units, made from a shard of this identity (empty: ours).
func (p *process) mirrorOf(build ids.Build, identity string) {
	p.t.Helper()
	p.must(p.mirror.Check(p.ctx))
	server, err := p.mirror.Acknowledge(p.ctx)
	p.must(err)
	if identity == "" {
		identity, err = p.shard.Identity(p.ctx)
		p.must(err)
	}
	var all admission.BucketSet
	all.Add(0, ids.Buckets-1)
	p.must(p.mirror.Install(p.ctx, admission.Image{
		Scope: admission.Scope{Campaign: campaign, SKU: phone}, Build: build, Server: server, Shard: identity,
		Window: admission.Window{OpenAtMS: 1, CloseAtMS: 1 << 42, KeepUntilMS: 1 << 42}, StreamMax: 100,
		Stocks: []admission.StockBase{{
			SKU: phone, Available: 10, Version: 1, LastNumber: 1, Gate: admission.Gate{SKU: phone, State: pb.GateState_GATE_STATE_OPEN, Bound: 100},
		}},
		Buckets: []admission.DomainBuckets{{Set: all}},
	}))
}

func (p *process) mirrorStock() int64 {
	p.t.Helper()
	f, err := p.mirror.Facts(p.ctx, admission.Scope{Campaign: campaign, SKU: phone}, phone)
	p.must(err)
	return f.Stock
}

// selling is a registered process with rules and 10 granted units.
func selling(t *testing.T) (*process, *leader, *played) {
	t.Helper()
	p := newProcess(t)
	l, s := p.registered()
	s.order(rulesDirective(1))
	if r := s.result("rules"); !r.GetDone() || r.GetDetail() != "" {
		t.Fatalf("rules: %v", r)
	}
	s.order(adjustment("g1", 1, grantKind, 10))
	if r := s.result("g1"); r.GetOutcome() != pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_APPLIED || r.GetStock().GetAvailable() != 10 {
		t.Fatalf("grant: %v", r)
	}
	return p, l, s
}

// TestGrantAppliedOnce: the same directive again has the same result and moves nothing.
func TestGrantAppliedOnce(t *testing.T) {
	_, _, s := selling(t)
	for range 3 {
		s.order(adjustment("g1", 1, grantKind, 10))
		r := s.result("g1")
		if r.GetOutcome() != pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_APPLIED || r.GetStock().GetGranted() != 10 || r.GetStock().GetLastNumber() != 1 {
			t.Fatalf("repeat: %v", r)
		}
	}
}

// TestReturnTakesFromTheMirrorFirst: at no moment is a returned unit promised to anybody; a refused one
// is given back.
func TestReturnTakesFromTheMirrorFirst(t *testing.T) {
	p, _, s := selling(t)
	p.mirrorOf(ids.Build{Fence: 1, Count: 1}, "")
	p.eventually(func() error {
		if _, ok := p.rules.Current().Campaign(campaign); !ok {
			return errors.New("the rules are not read yet")
		}
		return nil
	})
	// The shard is held back: what the mirror loses meanwhile, it loses before the shard's commit.
	tx, err := p.admin.Begin(p.ctx)
	p.must(err)
	if _, err := tx.Exec(p.ctx, "SELECT 1 FROM cellquota.stock FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	s.order(adjustment("r2", 2, returnKind, 4))
	p.eventually(func() error {
		if n := p.mirrorStock(); n != 6 {
			return fmt.Errorf("mirror has %d while the shard waits, want 6", n)
		}
		return nil
	})
	p.must(tx.Rollback(p.ctx))
	if r := s.result("r2"); r.GetOutcome() != pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_APPLIED || r.GetStock().GetAvailable() != 6 {
		t.Fatalf("return: %v", r)
	}
	s.order(adjustment("r2", 2, returnKind, 4)) // again
	s.result("r2")
	if n := p.mirrorStock(); n != 6 {
		t.Fatalf("a repeated return took the mirror to %d", n)
	}
	s.order(adjustment("r3", 3, returnKind, 7)) // does not fit
	if r := s.result("r3"); r.GetOutcome() != pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_REFUSED || r.GetStock().GetLastNumber() != 3 {
		t.Fatalf("return that does not fit: %v", r)
	}
	if n := p.mirrorStock(); n != 6 {
		t.Fatalf("a refused return left the mirror at %d, want 6", n)
	}
}

// TestWhatIsRefusedForGood and what only failed for now: the first has a result that says why, the
// second has none.
func TestWhatIsRefusedForGood(t *testing.T) {
	_, _, s := selling(t)
	s.order(adjustment("gap", 5, grantKind, 1)) // failed for now: number 2 comes first
	s.order(adjustment("g1", 1, grantKind, 99)) // another adjustment under a known id
	if r := s.result("g1"); !r.GetDone() || r.GetDetail() == "" || r.GetOutcome() != pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_UNSPECIFIED {
		t.Fatalf("conflict: %v", r)
	}
	old := rulesDirective(9)
	old.DirectiveId, old.FenceVersion = "old", -1
	s.order(old)
	if r := s.result("old"); !r.GetDone() || r.GetDetail() == "" {
		t.Fatalf("another fence version: %v", r)
	}
	token := rulesDirective(2)
	token.DirectiveId = "token"
	token.GetRules().GetSpec().GetSkus()[0].InventoryMode = 99 // of a newer control plane
	s.order(token)
	if r := s.result("token"); !r.GetDone() || r.GetDetail() == "" {
		t.Fatalf("rules that the cell cannot carry out: %v", r)
	}
	s.order(&pb.Directive{DirectiveId: "b1", Kind: &pb.Directive_BookNotice{BookNotice: &pb.BookNotice{
		CampaignId: string(campaign), SkuId: string(phone), BookRecordId: "rec-9",
	}}})
	if r := s.result("b1"); !r.GetDone() || r.GetDetail() != "" {
		t.Fatalf("book notice: %v", r)
	}
	s.order(adjustment("v2", 2, grantKind, 0))
	void := adjustment("v2", 2, grantKind, 0)
	void.GetAdjustment().Void = true
	s.order(void)
	for {
		r := s.result("v2")
		if r.GetOutcome() == pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_VOIDED && r.GetStock().GetBookRecordId() == "rec-v2" {
			return
		}
	}
}

// TestOutdatedStreamEnds: a directive under a lower term than the shard's, or a higher fence version
// than this process's, ends the stream; the next registration learns which is right.
func TestOutdatedStreamEnds(t *testing.T) {
	for name, change := range map[string]func(*pb.Directive){
		"lower term":           func(d *pb.Directive) { d.Term = &pb.Term{Count: 1, Id: "term-1"} },
		"higher fence version": func(d *pb.Directive) { d.FenceVersion = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			p, l, s := selling(t)
			if name == "lower term" {
				p.must(p.shard.RaiseTerm(p.ctx, 5, "term-5"))
			}
			d := adjustment("g2", 2, grantKind, 1)
			change(d)
			s.order(d)
			l.next(t)
			var n int
			p.scan("SELECT count(*) FROM cellquota.adjustments WHERE adjustment_id = 'g2'", &n)
			if n != 0 {
				t.Fatal("it was applied")
			}
		})
	}
}

// TestTermIsRaisedBeforeFactsAreRead: an adjustment in flight under an older term is waited for, and is
// in the facts.
func TestTermIsRaisedBeforeFactsAreRead(t *testing.T) {
	p, _, s := selling(t)
	// Another process of the cell applies a grant of the old leader and has not committed yet.
	other := p.db.Conn(t)
	tx, err := other.Begin(p.ctx)
	p.must(err)
	for _, step := range []string{
		"SELECT 1 FROM cellquota.term FOR SHARE",
		"UPDATE cellquota.stock SET granted = granted + 5, available = available + 5",
	} {
		if _, err := tx.Exec(p.ctx, step); err != nil {
			t.Fatal(err)
		}
	}
	s.say(&pb.LinkResponse{Kind: &pb.LinkResponse_RaiseTerm{RaiseTerm: &pb.RaiseTerm{Term: &pb.Term{Count: 2, Id: "term-2"}}}})
	p.eventually(func() error {
		var waiting int
		p.scan("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", &waiting)
		if waiting == 0 {
			return errors.New("the term is not being raised yet")
		}
		return nil
	})
	p.must(tx.Commit(p.ctx))
	raised := expect(s, (*pb.LinkRequest).GetTermRaised)
	if raised.GetTerm().GetCount() != 2 || raised.GetFenceVersion() != 1 || raised.GetStocks()[0].GetGranted() != 15 {
		t.Fatalf("facts %v", raised)
	}
	var count int64
	p.scan("SELECT term_count FROM cellquota.term", &count)
	if count != 2 {
		t.Fatalf("term row %d", count)
	}
}

// TestResultsOutliveTheirStream: a result that could not leave goes with the next stream.
func TestResultsOutliveTheirStream(t *testing.T) {
	p, l, s := selling(t)
	tx, err := p.admin.Begin(p.ctx)
	p.must(err)
	if _, err := tx.Exec(p.ctx, "SELECT 1 FROM cellquota.stock FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	s.order(adjustment("g2", 2, grantKind, 1))
	p.eventually(func() error {
		var waiting int
		p.scan("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", &waiting)
		if waiting == 0 {
			return errors.New("nobody waits for the stock row yet")
		}
		return nil
	})
	p.must(tx.Rollback(p.ctx))
	s.end <- errors.New("leader died")
	again := l.next(t)
	again.welcome(1, 1<<40)
	again.order(adjustment("g2", 2, grantKind, 1)) // the leader asks again in any case
	if r := again.result("g2"); r.GetStock().GetGranted() != 11 {
		t.Fatalf("%v", r)
	}
}

func TestResultsAreBoundedAndReplaced(t *testing.T) {
	r := newResults()
	for i := range maxResults + 2 {
		r.put(&pb.DirectiveResult{DirectiveId: fmt.Sprint(i)})
	}
	r.put(&pb.DirectiveResult{DirectiveId: "3", Detail: "newer"})
	first, _ := r.take()
	second, _ := r.take()
	if first.GetDirectiveId() != "2" || second.GetDetail() != "newer" || len(r.queue) != maxResults-2 {
		t.Fatalf("first %v, second %v, %d left", first, second, len(r.queue))
	}
}

// TestCampaignAcks: told when it changes, and again on a new stream.
func TestCampaignAcks(t *testing.T) {
	_, l, s := selling(t)
	s.order(rulesDirective(2))
	for version := int64(1); version < 2; {
		a := expect(s, (*pb.LinkRequest).GetCampaignAck)
		if a.GetCampaignId() != string(campaign) || !a.GetReady() || a.GetVersion() < version {
			t.Fatalf("%v", a)
		}
		version = a.GetVersion()
	}
	s.end <- errors.New("leader died")
	again := l.next(t)
	again.welcome(1, 1<<40)
	if a := expect(again, (*pb.LinkRequest).GetCampaignAck); a.GetVersion() != 2 {
		t.Fatalf("%v", a)
	}
}

// TestAGrantIsNotRefusedForAFaultOfTheShard: a ledger entry that the database refuses (its partition is
// away) is no answer about the grant; once the shard is mended the same grant is applied.
func TestAGrantIsNotRefusedForAFaultOfTheShard(t *testing.T) {
	p, _, s := selling(t)
	part := fmt.Sprintf("cellquota_ledger.%q", campaign)
	p.exec("ALTER TABLE cellquota.ledger DETACH PARTITION " + part)
	s.order(adjustment("g2", 2, grantKind, 5))
	s.order(adjustment("g1", 1, grantKind, 10)) // what was decided before is told as ever
	if r := expect(s, (*pb.LinkRequest).GetDirectiveResult); r.GetDirectiveId() != "g1" {
		t.Fatalf("told: %v", r)
	}
	p.exec(fmt.Sprintf("ALTER TABLE cellquota.ledger ATTACH PARTITION %s FOR VALUES IN ('%s')", part, campaign))
	s.order(adjustment("g2", 2, grantKind, 5))
	if r := s.result("g2"); r.GetOutcome() != pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_APPLIED || r.GetStock().GetAvailable() != 15 {
		t.Fatalf("once the shard is mended: %v", r)
	}
}
