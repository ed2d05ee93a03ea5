package shard_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// lottery installs a campaign whose entry is open from and until so long from now.
func (b *bench) lottery(opens, closes time.Duration) {
	b.t.Helper()
	r := rules(phone)
	r.Spec.Mode = cellquotav1.CampaignMode_CAMPAIGN_MODE_LOTTERY
	r.Spec.Lottery = &cellquotav1.LotteryRules{
		EntryOpenAt: timestamppb.New(time.Now().Add(opens)), EntryCloseAt: timestamppb.New(time.Now().Add(closes)), Tiers: map[string]int32{"gold": 3},
	}
	b.install(r)
}

func (b *bench) enter(asks ...shard.EntryAsk) []shard.EntryResult {
	b.t.Helper()
	out, err := b.store.AddEntries(b.ctx, asks)
	b.must(err)
	return out
}

func entrant(user, tier string) shard.EntryAsk {
	return shard.EntryAsk{Campaign: campaign, SKU: phone, User: ids.UserID(user), Tier: tier}
}

// officer does what the fencer's role may do with entries.
type officer struct {
	b    *bench
	conn *pgx.Conn
}

func (b *bench) officer() officer { return officer{b, b.fencer()} }

func (o officer) closeEntries() (n int64, err error) {
	err = o.conn.QueryRow(o.b.ctx, "SELECT cellquota.close_entries($1, $2, $3, 2000)", string(cellID), campaign, phone).Scan(&n)
	return n, err
}

func (o officer) draw(winners ...ids.EntryID) error {
	_, err := o.conn.Exec(o.b.ctx, "SELECT cellquota.draw_entries($1, $2, $3, $4)", string(cellID), campaign, phone, winners)
	return err
}

func (o officer) end(winners int64) error {
	_, err := o.conn.Exec(o.b.ctx, "SELECT cellquota.end_draw($1, $2, $3, $4)", string(cellID), campaign, phone, winners)
	return err
}

// refusedEntries tells whether the shard refused for the state of the entries.
func refusedEntries(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "CQ015"
}

func (b *bench) entries() (n int64) {
	b.t.Helper()
	b.must(b.admin.QueryRow(b.ctx, "SELECT count(*) FROM cellquota.entries").Scan(&n))
	return n
}

// An entry's life: taken once per user, with its tier's tickets; nothing after entry was closed; the
// drawn ones won and the others lost, also while the cell is fenced.
func TestEntries(t *testing.T) {
	b := newBench(t)
	b.lottery(-time.Minute, time.Hour)
	out := b.enter(entrant("ann", "gold"), entrant("bob", ""), entrant("ann", ""), shard.EntryAsk{Campaign: campaign, SKU: "no-such", User: "ann"}, shard.EntryAsk{Campaign: "none", SKU: phone, User: "ann"})
	ann, bob := out[0].Entry, out[1].Entry
	if out[0].Outcome != shard.EntryAdded || ann.Tickets != 3 || ann.State != shard.Entered || ann.ID != ids.DeriveEntry(campaign, phone, "ann", cellID) || bob.Tickets != 1 {
		t.Fatalf("%+v", out)
	}
	if out[2].Entry.ID != ann.ID || out[3].Outcome != shard.EntryUnknown || out[4].Outcome != shard.EntryUnknown {
		t.Fatalf("%+v", out)
	}
	if again := b.enter(entrant("ann", "silver"))[0]; again.Outcome != shard.EntryReplayed || again.Entry != ann {
		t.Fatalf("again: %+v, first %+v", again, ann)
	}
	f := b.officer()
	if err := f.draw(ann.ID); !refusedEntries(err) {
		t.Fatalf("drawn while entry is open: %v", err)
	}
	for range 2 {
		if n, err := f.closeEntries(); err != nil || n != 2 {
			t.Fatalf("closed with %d: %v", n, err)
		}
	}
	if late := b.enter(entrant("carl", ""))[0]; late.Outcome != shard.EntryEnded {
		t.Fatalf("after entry was closed: %+v", late)
	}
	if _, err := b.fence(f.conn, 2, time.Second); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.must(f.draw(ann.ID))
	}
	if e, err := b.store.GetEntry(b.ctx, campaign, phone, "ann"); err != nil || e.State != shard.Entered {
		t.Fatalf("before the draw ended: %+v, %v", e, err)
	}
	if err := f.end(2); !refusedEntries(err) {
		t.Fatalf("another number of winners: %v", err)
	}
	for range 2 {
		b.must(f.end(1))
	}
	if err := f.draw(bob.ID); !refusedEntries(err) {
		t.Fatalf("one more winner after the draw: %v", err)
	}
	won, err := b.store.GetEntry(b.ctx, campaign, phone, "ann")
	b.must(err)
	lost, err := b.store.GetEntry(b.ctx, campaign, phone, "bob")
	b.must(err)
	if won.State != shard.Won || lost.State != shard.Lost {
		t.Errorf("ann %s, bob %s", won.State, lost.State)
	}
	if _, err := b.store.GetEntry(b.ctx, campaign, phone, "carl"); !errors.Is(err, shard.ErrNotFound) {
		t.Errorf("who never entered: %v", err)
	}
}

func TestEntryKeepsItsWindowAndHome(t *testing.T) {
	b := newBench(t)
	b.lottery(time.Hour, 2*time.Hour)
	if r := b.enter(entrant("ann", ""))[0]; r.Outcome != shard.EntryNotStarted || r.Opens < 59*time.Minute {
		t.Errorf("too early: %+v", r)
	}
	b = newBench(t)
	b.lottery(-time.Hour, -time.Minute)
	if r := b.enter(entrant("ann", ""))[0]; r.Outcome != shard.EntryEnded {
		t.Errorf("too late: %+v", r)
	}
	b = newBench(t)
	b.lottery(-time.Hour, time.Hour)
	if _, err := b.admin.Exec(b.ctx, "UPDATE cellquota.buckets SET state = 'CLOSED'"); err != nil {
		t.Fatal(err)
	}
	if r := b.enter(entrant("ann", ""))[0]; r.Outcome != shard.EntryMoved {
		t.Errorf("her bucket is elsewhere: %+v", r)
	}
	if _, err := b.fence(b.fencer(), 2, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.AddEntries(b.ctx, []shard.EntryAsk{entrant("bob", "")}); !shard.MayNotWrite(err) {
		t.Errorf("a fenced cell: %v", err)
	}
}

// Entry is closed while customers press: whoever was told ENTERED is counted, and nobody else is there.
func TestClosingEntryCountsEverybodyWhoIsIn(t *testing.T) {
	b := newBench(t)
	b.lottery(-time.Minute, time.Hour)
	var mu sync.Mutex
	told := map[ids.EntryID]bool{}
	var callers sync.WaitGroup
	for c := range 8 {
		callers.Go(func() {
			for i := range 50 {
				out, err := b.store.AddEntries(b.ctx, []shard.EntryAsk{entrant(fmt.Sprintf("u-%d-%d", c, i), "")})
				if err != nil {
					t.Error(err)
					return
				}
				if out[0].Outcome == shard.EntryAdded {
					mu.Lock()
					told[out[0].Entry.ID] = true
					mu.Unlock()
				}
			}
		})
	}
	f := b.officer()
	testkit.Eventually(t, time.Minute, func() error {
		if b.entries() < 40 {
			return errors.New("too few entered")
		}
		return nil
	})
	counted, err := f.closeEntries()
	b.must(err)
	callers.Wait()
	rows := b.entries()
	if int64(len(told)) != counted || rows != counted || counted == 400 {
		t.Errorf("told %d that they are in, counted %d, %d rows", len(told), counted, rows)
	}
}
