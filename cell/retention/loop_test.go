package retention_test

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/retention"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/shardtest"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// bench is a real shard with a campaign of six orders, three of them paid and three
// closed, another campaign that goes on, and a real Redis.
type bench struct {
	*shardtest.Shard
	redis  *redis.Client
	mirror *admission.Client
	reg    *prometheus.Registry
}

func newBench(t *testing.T) *bench {
	t.Helper()
	server := testkit.Redis(t)
	b := &bench{Shard: shardtest.New(t, 6), redis: redis.NewClient(&redis.Options{Addr: server.Addr()}), reg: prometheus.NewRegistry()}
	t.Cleanup(func() { _ = b.redis.Close() })
	var err error
	b.mirror, err = admission.Open(admission.Config{Cell: shardtest.Cell, Addrs: []string{server.Addr()}, Timeout: time.Second}, admission.Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	b.Must(err)
	t.Cleanup(func() { _ = b.mirror.Close() })
	b.Pay(b.Orders[:3]...)
	b.Advance(10 * time.Minute)
	b.Must(b.Store.Heartbeat(b.Ctx))
	b.Advance(10 * time.Minute)
	for b.Count("orders WHERE state = 'PENDING_PAYMENT'") > 0 {
		n, _, err := b.Store.CloseDue(b.Ctx, 10, shard.CloseWaits{Attempt: time.Millisecond})
		b.Must(err)
		if len(n) == 0 {
			t.Fatal("nothing is closed")
		}
	}
	for _, key := range []string{"cq:{c:s}:meta", "cq:{c:s}:1.1:marks", "cq:{c:s}:1.1:record:s:r:u0", "cq:{other:s}:meta"} {
		b.Must(b.redis.HSet(b.Ctx, key, "x", 1).Err())
	}
	other := rules()
	_, err = b.Store.InstallRules(b.Ctx, 1, "t", other)
	b.Must(err)
	_, err = b.Store.ApplyAdjustment(b.Ctx, shard.Adjustment{ID: "o", Campaign: "other", SKU: "s", FenceVersion: 1, Number: 1, Kind: shard.Grant, Units: 5, TermCount: 1, TermID: "t"})
	b.Must(err)
	return b
}

// rules of the other campaign.
func rules() *pb.CampaignRules {
	out := shardtest.Rules()
	out.Spec.CampaignId = "other"
	return out
}

func (b *bench) settle() {
	b.T.Helper()
	b.Rules.Version++
	b.Rules.State = pb.CampaignState_CAMPAIGN_STATE_SETTLED
	b.Install()
}

func (b *bench) loop() *retention.Loop {
	b.T.Helper()
	l, err := retention.New(retention.Config{Page: 4}, retention.Deps{
		Store: b.Store, Mirrors: b.mirror, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Registry: b.reg,
		Scopes: func(id ids.CampaignID) []admission.Scope { return []admission.Scope{{Campaign: id, SKU: "s"}} },
	})
	b.Must(err)
	return l
}

func (b *bench) text(sql string) (out string) {
	b.T.Helper()
	b.Must(b.Admin.QueryRow(b.Ctx, sql).Scan(&out))
	return out
}

// story is every entry of the campaign as the view has it.
func (b *bench) story() string {
	return b.text("SELECT count(*) || ' ' || md5(string_agg(l::text, '|' ORDER BY entry_id)) FROM cellquota.v_ledger l WHERE campaign_id = 'c'")
}

func (b *bench) parts() string {
	return b.text("SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE inhparent = 'cellquota.ledger'::regclass")
}

func (b *bench) keys() int {
	b.T.Helper()
	all, err := b.redis.Keys(b.Ctx, "*").Result()
	b.Must(err)
	return len(all)
}

// The whole way: nothing before it is due; then mirror, ledger and inbox, each once; what is
// archived is read in the same view, is immutable, and late callbacks and a fence find it.
func TestASettledCampaignIsArchived(t *testing.T) {
	b := newBench(t)
	b.settle()
	loop, before := b.loop(), b.story()
	b.Must(loop.Once(b.Ctx))
	if b.parts() != "c other" || b.keys() != 4 {
		t.Fatalf("not due, and there are %q and %d keys", b.parts(), b.keys())
	}
	b.Advance(25 * time.Hour)
	b.Must(loop.Once(b.Ctx))
	if b.parts() != "late other" || b.keys() != 1 || b.story() != before || b.Count("ledger_archive") != 13 {
		t.Fatalf("partitions %q, %d keys, %s, before %s, %d archived", b.parts(), b.keys(), b.story(), before, b.Count("ledger_archive"))
	}
	if got := b.text("SELECT snapshot::text || entries FROM cellquota.v_archives WHERE archived_at IS NOT NULL"); got != `{"s": {"diff": [3, 0, 3], "closing": [3, 0, 3], "entries": 13, "opening": [0, 0, 0]}}13` {
		t.Errorf("snapshot %s", got)
	}
	for _, change := range []string{"UPDATE cellquota.ledger_archive SET actor = 'x'", "DELETE FROM cellquota.ledger_archive", "TRUNCATE cellquota.ledger_archive"} {
		if _, err := b.Admin.Exec(b.Ctx, change); err == nil {
			t.Errorf("%s is done", change)
		}
	}
	if n := b.Count("v_reconcile_inbox WHERE campaign_id = 'c'") + b.Count("v_reconcile_holds WHERE campaign_id = 'c'") + b.Count("v_reconcile_buyers WHERE campaign_id = 'c'"); n != 0 {
		t.Errorf("%d rows of an archived campaign are compared with a ledger that is not there", n)
	}
	b.Must(loop.Once(b.Ctx))
	if b.Count("inbox WHERE campaign_id = 'c'") != 6 || b.due() != 0 {
		t.Errorf("inbox rows went, or are looked for (%d), while their message can be replayed", b.due())
	}
	b.Exec("UPDATE cellquota.inbox SET outcome = 'PARKED' WHERE user_id = 'u5'")
	b.Advance(145 * time.Hour)
	b.young(loop)
	if b.Count("inbox WHERE campaign_id = 'c'") != 1 || b.Count("inbox WHERE outcome = 'PARKED'") != 1 {
		t.Errorf("%d inbox rows are left", b.Count("inbox"))
	}
	b.Must(loop.Once(b.Ctx)) // again: nothing
	if b.due() != 0 {
		t.Error("a campaign whose inbox is empty but for what a person looks at is walked for ever")
	}
	for name, want := range map[string]float64{"campaigns_archived_total": 1, "inbox_pruned_total": 5, "mirror_keys_pruned_total": 3, "ledger_partitions": 2} {
		if got := b.metric("cellquota_" + name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	b.replayed()
	b.late(before)
}

// replayed: a message that was sold out once, whose row is gone, comes again when units are back.
func (b *bench) replayed() {
	b.T.Helper()
	build := ids.Build{Fence: 1, Count: 1}
	got, err := b.Store.ApplyOrders(b.Ctx, shard.Batch{From: shard.Position{Topic: "t", TopicID: "id", Next: 6}, To: 7, Messages: []shard.Message{{Offset: 6, Admission: reservation.Admission{
		Reservation: ids.DeriveReservation("c", "s", "u9", "r", shardtest.Cell, build), Request: "r", Campaign: "c", SKU: "s", User: "u9", Quantity: 1, Build: build,
		Fingerprint: "f", Price: shardtest.Price, AdmittedAt: clock.System().Now(),
	}}}})
	b.Must(err)
	if !got.Decisions[0].Duplicate || b.Count("orders") != 6 {
		b.T.Errorf("a message of an archived campaign became %+v", got.Decisions[0])
	}
}

// due is how many campaigns the loop has to look at.
func (b *bench) due() int {
	b.T.Helper()
	due, err := b.Store.SettledCampaigns(b.Ctx, 24*time.Hour, 168*time.Hour)
	b.Must(err)
	return len(due)
}

// young: a row that came late is left to another walk, and one process walks at a time.
func (b *bench) young(loop *retention.Loop) {
	b.T.Helper()
	b.Exec("UPDATE cellquota.inbox SET received_at = cellquota.now() WHERE user_id = 'u3'")
	claim, err := b.DB.Conn(b.T).Begin(b.Ctx)
	b.Must(err)
	_, err = claim.Exec(b.Ctx, "SELECT FROM cellquota.archives FOR UPDATE")
	b.Must(err)
	b.Must(loop.Once(b.Ctx))
	if n := b.Count("inbox WHERE campaign_id = 'c'"); n != 6 {
		b.T.Errorf("%d rows while another process walks", n)
	}
	b.Must(claim.Rollback(b.Ctx))
	b.Must(loop.Once(b.Ctx))
	if n := b.Count("inbox WHERE campaign_id = 'c'"); n != 2 || b.due() != 1 {
		b.T.Errorf("%d rows, %d campaigns are due, with a row that came late", n, b.due())
	}
	b.Advance(169 * time.Hour)
	b.Must(loop.Once(b.Ctx))
}

// late: money comes for a closed order, and the cell is fenced.
func (b *bench) late(before string) {
	b.T.Helper()
	results, err := b.Store.StepOrders(b.Ctx, time.Minute, []shard.Step{{Kind: shard.StepSucceeded, Order: b.Orders[5], Payment: "late", Amount: shardtest.Price, FromChannel: true}})
	b.Must(err)
	b.Must(results[0].Err)
	if b.Count("payments WHERE payment_id = 'late' AND state IN ('PAID_AFTER_CLOSE', 'REFUND_PENDING')") != 1 || b.story() != before {
		b.T.Errorf("a late callback: %d rows, %s", b.Count("payments WHERE payment_id = 'late'"), b.story())
	}
	b.Exec("SELECT cellquota.fence_cell($1, 2, 'dead', 1000)", string(shardtest.Cell))
	if got := b.text("SELECT action || before_available || after_available FROM cellquota.v_ledger WHERE campaign_id = 'c' ORDER BY entry_id DESC LIMIT 1"); got != "SEAL30" {
		b.T.Errorf("the newest entry after a fence: %s", got)
	}
	if _, err := b.Store.ArchiveLedger(b.Ctx, "other", 0, 10); !errors.Is(err, shard.ErrFenced) {
		b.T.Errorf("a fenced cell archives: %v", err)
	}
}

// Many processes at once, and one that died between two pages: one archive, whole.
func TestManyArchiveAtOnce(t *testing.T) {
	b := newBench(t)
	b.settle()
	b.Advance(25 * time.Hour)
	before := b.story()
	if step, err := b.Store.ArchiveLedger(b.Ctx, "c", time.Hour, 3); err != nil || step != shard.ArchiveCopied || b.story() != before {
		t.Fatalf("one page: %s, %v, %s", step, err, b.story())
	}
	var all sync.WaitGroup
	for range 4 {
		store := b.Open()
		all.Go(func() {
			for range 50 {
				step, err := store.ArchiveLedger(b.Ctx, "c", time.Hour, 3)
				if err != nil {
					t.Error(err)
					return
				}
				if step == shard.Archived {
					return
				}
			}
			t.Error("never archived")
		})
	}
	all.Wait()
	if b.story() != before || b.parts() != "late other" || b.Count("ledger_archive") != 13 {
		t.Errorf("%s, before %s; %q", b.story(), before, b.parts())
	}
}

// Somebody writes to the ledger just now: the archive waits, and no sale waits for it.
func TestTheArchiveWaitsForWriters(t *testing.T) {
	b := newBench(t)
	b.settle()
	b.Advance(25 * time.Hour)
	begun, err := b.DB.Conn(t).Begin(b.Ctx)
	b.Must(err)
	_, err = begun.Exec(b.Ctx, "LOCK TABLE cellquota.ledger IN ROW EXCLUSIVE MODE")
	b.Must(err)
	if step, err := b.Store.ArchiveLedger(b.Ctx, "c", time.Hour, 100); err != nil || step != shard.ArchiveWaiting || b.parts() != "c other" {
		t.Errorf("%s, %v, %q", step, err, b.parts())
	}
	b.Must(begun.Rollback(b.Ctx))
	if step, err := b.Store.ArchiveLedger(b.Ctx, "c", time.Hour, 100); err != nil || step != shard.Archived {
		t.Errorf("%s, %v", step, err)
	}
}

// A ledger that does not lead to its stock row stays where it is, and holds up no other.
func TestALedgerThatDoesNotCloseIsNotArchived(t *testing.T) {
	b := newBench(t)
	b.settle()
	other := rules()
	other.Version, other.State = 2, pb.CampaignState_CAMPAIGN_STATE_SETTLED
	_, err := b.Store.InstallRules(b.Ctx, 1, "t", other)
	b.Must(err)
	b.Advance(25 * time.Hour)
	b.Exec("UPDATE cellquota.stock SET available = available - 1, granted = granted - 1 WHERE campaign_id = 'c'")
	loop, before := b.loop(), b.story()
	if err := loop.Once(b.Ctx); !errors.Is(err, shard.ErrConflict) || b.parts() != "c late" || b.Count("archives WHERE campaign_id = 'c'") != 0 {
		t.Errorf("%v, %q", err, b.parts())
	}
	b.Exec("UPDATE cellquota.stock SET available = available + 1, granted = granted + 1 WHERE campaign_id = 'c'")
	b.Must(loop.Once(b.Ctx)) // the second campaign of the partition for what comes late
	if b.parts() != "late" || b.story() != before || b.Count("ledger_archive") != 14 {
		t.Errorf("%q, %s, before %s", b.parts(), b.story(), before)
	}
}

func (b *bench) metric(name string) float64 {
	b.T.Helper()
	families, err := b.reg.Gather()
	b.Must(err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	b.T.Errorf("no %s", name)
	return 0
}

// An entry whose id was handed out before the page, and that committed after it, is not lost.
func TestAnEntryThatCommitsBehindTheWalk(t *testing.T) {
	b := newBench(t)
	b.settle()
	b.Advance(25 * time.Hour)
	if step, err := b.Store.ArchiveLedger(b.Ctx, "c", time.Hour, 3); err != nil || step != shard.ArchiveCopied {
		t.Fatalf("one page: %s, %v", step, err)
	}
	b.Exec(`INSERT INTO cellquota.ledger (entry_id, campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed, before_available, after_available,
		before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, created_at)
		OVERRIDING SYSTEM VALUE VALUES (-1, 'c', 's', 'SEAL', 'late', 'SEAL:late:1', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 't', 't', now())`)
	before := b.story()
	if step, err := b.Store.ArchiveLedger(b.Ctx, "c", time.Hour, 100); err != nil || step != shard.Archived {
		t.Fatalf("%s, %v", step, err)
	}
	if b.story() != before || b.Count("ledger_archive WHERE entry_id = -1") != 1 {
		t.Errorf("%s, before %s", b.story(), before)
	}
}
