package verify

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

// cutTries is how often a moving book is read again before it is unchecked.
const cutTries = 5

// Verifier answers one thorough verification at a time; safe for concurrent use.
type Verifier struct {
	plane   Plane
	reader  *shards.Reader
	mirrors Mirrors
	clock   clock.Clock
}

// New makes a Verifier.
func New(plane Plane, reader *shards.Reader, mirrors Mirrors, c clock.Clock) *Verifier {
	return &Verifier{plane: plane, reader: reader, mirrors: mirrors, clock: c}
}

// Verify checks every invariant of a campaign, or of all for "". The error is only for what makes
// the whole question unanswerable (etcd is silent); a silent shard is in Unchecked.
func (v *Verifier) Verify(ctx context.Context, campaign ids.CampaignID) (Result, error) {
	before, err := v.plane.Cut(ctx, campaign)
	if err != nil {
		return Result{}, fmt.Errorf("read the books: %w", err)
	}
	var cuts []shardCut
	var after Cut
	for try := 1; ; try++ {
		cuts = readShards(ctx, v.reader, before.Cells, campaign, tokenSKUs(before.Campaigns), true)
		if after, err = v.plane.Cut(ctx, campaign); err != nil {
			return Result{}, fmt.Errorf("read the books again: %w", err)
		}
		if len(moved(before, after)) == 0 || try == cutTries {
			break
		}
		before = after
		if err := v.clock.Sleep(ctx, 20*time.Millisecond); err != nil {
			return Result{}, err
		}
	}
	t := newTally()
	judgeBooks(t, before)
	judgeBooks(t, after)
	v.judgeShards(ctx, t, before, moved(before, after), cuts)
	v.judgeBuyers(ctx, t, before)
	t.skip(I6, "every ordered message has its order; what clients were told needs a history: cellctl verify --history FILE")
	return t.result(after.Revision), nil
}

// moved names the books that changed between two cuts.
func moved(before, after Cut) map[core.BookKey]bool {
	was := map[core.BookKey]string{}
	for _, b := range before.Books {
		was[b.Key] = strconv.FormatInt(b.Version, 10) + b.LastRecordID
	}
	out := map[core.BookKey]bool{}
	for _, b := range after.Books {
		if was[b.Key] != strconv.FormatInt(b.Version, 10)+b.LastRecordID {
			out[b.Key] = true
		}
		delete(was, b.Key)
	}
	for key := range was {
		out[key] = true
	}
	return out
}

func (v *Verifier) judgeShards(ctx context.Context, t *tally, cut Cut, moving map[core.BookKey]bool, cuts []shardCut) {
	for _, s := range cuts {
		if s.err != nil {
			t.miss("cell "+string(s.cell.Spec.ID), s.err.Error(), I5, I6, I7, I8)
		}
		for _, f := range s.faults {
			t.breach(Invariant(f.Invariant), f.Campaign, f.SKU, string(s.cell.Spec.ID), "%s", f.Detail)
		}
		for key, row := range s.stocks {
			if _, known := findBook(cut.Books, key); !known && row.Granted > 0 && !moving[key] && !cut.Deleted[key.Campaign] {
				t.breach(I2, string(key.Campaign), string(key.SKU), string(s.cell.Spec.ID), "the shard holds %d units of a SKU that has no book", row.Granted)
			}
		}
	}
	over, quiet, others := 0, 0, restless{}
	for _, b := range cut.Books {
		if moving[b.Key] {
			t.miss(b.Key.String(), "its book kept moving", I2, I3)
			continue
		}
		total, whole := judgeSums(t, b, cuts)
		campaign := campaignOf(cut.Campaigns, b.Key.Campaign)
		if drained(total, whole, ended(campaign, v.clock.Now()), cut.Open[b.Key]) {
			judgeEnd(t, b, campaign, cuts)
			over++
		}
		quiet += v.judgeMirrors(ctx, t, b, cuts, &others)
	}
	t.says(I2, "%d shards: granted = available + reserved + confirmed, at most the book's allocation; token rows as the counters", len(cuts))
	t.says(I3, "%d SKUs: reserved + confirmed over %d shards at most the limit, the limit at most the physical stock", len(cut.Books), len(cuts))
	t.says(I5, "every entry starts where the one before ended; the replayed ledger is the stock row, and what left it the SEALED token rows; every partition refuses changes")
	t.says(I7, "one RESERVE, then at most one of CONFIRM and RELEASE, as the reservation says")
	t.says(I8, "no entry under a fence version below the shard's of its moment")
	t.says(I10, "%d SKUs closed and drained", over)
	if over < len(cut.Books) || len(cut.Books) == 0 {
		t.skip(I10, fmt.Sprintf("%d of %d SKUs are closed and drained", over, len(cut.Books)))
	}
	t.says(I9, "%d mirrors quiet and equal to their shard's available − parked%s", quiet, others.aside())
	if quiet == 0 {
		t.skip(I9, "no mirror is quiet"+others.aside())
	}
}

// tokenSKUs names the SKUs whose units are rows, as the shards' faults want them.
func tokenSKUs(campaigns []core.Campaign) (out []string) {
	for _, c := range campaigns {
		for _, s := range c.Spec.SKUs {
			if s.Inventory == core.InventoryToken {
				out = append(out, core.BookKey{Campaign: c.Spec.ID, SKU: s.ID}.String())
			}
		}
	}
	return out
}

func findBook(books []core.Book, key core.BookKey) (core.Book, bool) {
	for _, b := range books {
		if b.Key == key {
			return b, true
		}
	}
	return core.Book{}, false
}

func campaignOf(campaigns []core.Campaign, id ids.CampaignID) core.Campaign {
	for _, c := range campaigns {
		if c.Spec.ID == id {
			return c
		}
	}
	return core.Campaign{}
}

func ended(c core.Campaign, now time.Time) bool {
	return c.State == core.CampaignSettled || c.ReadState(now) == core.CampaignClosed
}
