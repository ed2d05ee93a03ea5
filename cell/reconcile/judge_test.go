package reconcile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const aID = ids.ReservationID("cell-1.raaaaaaaaaaaaaaaaaaaaaaaaaa")

// noon is when everything is judged; it happened an hour before.
var (
	noon   = time.Date(2026, 11, 11, 12, 0, 0, 0, time.UTC)
	before = noon.Add(-time.Hour)
	build  = ids.Build{Fence: 1, Count: 1}
	limits = bounds{inFlight: time.Minute, settle: time.Second, overdue: time.Minute}
)

// closed is a request that was ordered, cancelled and given back.
func closed() *facts {
	return &facts{
		id: aID, now: noon,
		inbox: &shard.InboxFact{Reservation: aID, Quantity: 2, Outcome: shard.Ordered, Build: build, ReceivedAt: before},
		hold: &shard.HoldFact{
			Reservation: aID, Quantity: 2, State: reservation.Released, Order: aID.Order(), OrderQuantity: 2, OrderState: reservation.OrderClosed, Buyer: aID, UpdatedAt: before,
		},
		entries: []shard.EntryFact{
			{ID: 1, Action: "RESERVE", Reservation: aID, Available: -2, Reserved: 2, StockVersion: 2},
			{ID: 2, Action: "RELEASE", Reservation: aID, Available: 2, Reserved: -2, StockVersion: 3},
		},
		mirror: &sight{
			build: build, base: 1, now: noon, settled: false, released: true,
			record: &admission.Seen{Reservation: aID, State: pb.RequestState_REQUEST_STATE_CLOSED, Quantity: 2, AdmittedAtMS: before.UnixMilli()},
		},
	}
}

// Each change of a whole request is one difference of its kind, or none where something is under way.
func TestJudge(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*facts)
		want   string
	}{
		"whole":                             {func(*facts) {}, ""},
		"its message was pruned":            {func(f *facts) { f.inbox = nil }, ""},
		"its record was pruned":             {func(f *facts) { f.mirror.record = nil }, ""},
		"no mirror":                         {func(f *facts) { f.mirror = nil }, ""},
		"not given back":                    {func(f *facts) { f.mirror.released = false }, "CLOSED_WITHOUT_RETURN/OPEN/return"},
		"not given back, on its way":        {func(f *facts) { f.mirror.released, f.pending = false, true }, ""},
		"not given back, just closed":       {func(f *facts) { f.mirror.released, f.hold.UpdatedAt = false, noon }, ""},
		"given back before the build":       {func(f *facts) { f.mirror.released, f.mirror.base = false, 3 }, ""},
		"shown as paid":                     {func(f *facts) { f.mirror.record.State = pb.RequestState_REQUEST_STATE_PAID }, "STATE_MISMATCH/OPEN/republish"},
		"no RELEASE":                        {func(f *facts) { f.entries = f.entries[:1] }, "MISSING_ACTION/PROPOSED/release"},
		"no RESERVE":                        {func(f *facts) { f.entries = f.entries[1:] }, "MISSING_ACTION/MANUAL_REVIEW/"},
		"a second RELEASE":                  {func(f *facts) { f.entries = append(f.entries, f.entries[1]) }, "DUPLICATE_ACTION/PROPOSED/reverse"},
		"a second RELEASE that is reversed": {func(f *facts) { e := f.entries[1]; e.Reversed = true; f.entries = append(f.entries, e) }, ""},
		"another quantity in the message":   {func(f *facts) { f.inbox.Quantity = 1 }, "QUANTITY_MISMATCH/MANUAL_REVIEW/"},
		"another quantity in the entry":     {func(f *facts) { f.entries[0].Reserved = 1 }, "QUANTITY_MISMATCH/MANUAL_REVIEW/"},
		"token rows that stayed":            {func(f *facts) { f.hold.Tokens, f.hold.TokenRows = true, 2 }, "QUANTITY_MISMATCH/MANUAL_REVIEW/"},
		"another's place":                   {func(f *facts) { f.hold.Buyer = "cell-1.rother" }, "STATE_MISMATCH/MANUAL_REVIEW/"},
		"an order still open":               {func(f *facts) { f.hold.OrderState = reservation.PendingPayment }, "STATE_MISMATCH/MANUAL_REVIEW/"},
		"no order":                          {func(f *facts) { f.hold.Order, f.hold.State, f.entries = "", reservation.Reserved, f.entries[:1] }, "RESERVATION_WITHOUT_ORDER/PROPOSED/release"},
		"no reservation":                    {func(f *facts) { f.hold, f.entries = nil, f.entries[:1] }, "EVENT_WITHOUT_RESERVATION/PROPOSED/reverse"},
		"parked":                            {func(f *facts) { f.hold, f.entries, f.inbox.Outcome = nil, nil, shard.Parked }, "EVENT_WITHOUT_RESERVATION/MANUAL_REVIEW/return"},
		"rejected and not given back":       {func(f *facts) { f.hold, f.entries, f.inbox.Outcome, f.mirror.record = nil, nil, shard.Rejected, nil }, "CLOSED_WITHOUT_RETURN/OPEN/return"},
		"rejected of another build": {func(f *facts) {
			f.hold, f.entries, f.inbox.Outcome, f.inbox.Build, f.mirror.record = nil, nil, shard.Rejected, ids.Build{Fence: 1, Count: 2}, nil
		}, ""},
		"paid and not confirmed": {func(f *facts) { open(f); f.hold.Paid = 1 }, "MISSING_ACTION/MANUAL_REVIEW/"},
		"in review":              {func(f *facts) { open(f); f.hold.State = reservation.ManualReview }, "OVERDUE/MANUAL_REVIEW/release"},
		"not closed":             {func(f *facts) { open(f); f.hold.OverdueS = 61 }, "OVERDUE/OPEN/"},
		"about to be closed":     {func(f *facts) { open(f); f.hold.OverdueS = 60 }, ""},
		"taken":                  {func(f *facts) { taken(f); f.mirror.trail.Message = []byte("m") }, "TAKEN_WITHOUT_EVENT/OPEN/republish"},
		"taken, message lost":    {taken, "TAKEN_WITHOUT_EVENT/PROPOSED/tombstone"},
		"taken just now":         {func(f *facts) { taken(f); f.mirror.record.AdmittedAtMS = noon.Add(-time.Minute).UnixMilli() }, ""},
		"acknowledged":           {func(f *facts) { taken(f); f.mirror.record.State = pb.RequestState_REQUEST_STATE_QUEUED }, "EVENT_WITHOUT_RESERVATION/PROPOSED/tombstone"},
		"a mark of a rejection": {func(f *facts) {
			f.hold, f.entries, f.inbox.Outcome, f.mirror.settled, f.mirror.record = nil, nil, shard.Rejected, true, nil
			f.mirror.mark = &admission.Mark{Reservation: aID}
		}, "ORPHAN_BUYER_MARK/PROPOSED/release"},
	} {
		t.Run(name, func(t *testing.T) {
			f := closed()
			row.change(f)
			got := ""
			for _, one := range judge(f, limits) {
				got += string(one.Kind) + "/" + string(one.State) + "/" + string(one.Action)
				if one.ID == "" || one.Reservation != aID || one.Detail == "" {
					t.Errorf("%+v", one)
				}
			}
			if got != row.want {
				t.Errorf("judged %q, want %q", got, row.want)
			}
		})
	}
}

// open makes the request's order unpaid, and its mirror unasked.
func open(f *facts) {
	f.hold.State, f.hold.OrderState, f.entries, f.mirror = reservation.Reserved, reservation.PendingPayment, f.entries[:1], nil
}

// taken leaves what the mirror has.
func taken(f *facts) {
	f.hold, f.entries, f.inbox, f.mirror.trail = nil, nil, nil, &admission.Trail{}
	f.mirror.record.State = pb.RequestState_REQUEST_STATE_ADMITTED
}

// shuffled are ledgers with gaps, served in pages.
type shuffled struct {
	Pages
	inbox   []shard.InboxFact
	holds   []shard.HoldFact
	entries []shard.EntryFact
}

func behind[T any](all []T, limit int, past func(T) bool) []T {
	i := slices.IndexFunc(all, past)
	if i < 0 {
		return nil
	}
	return slices.Clone(all[i:min(i+limit, len(all))])
}

func (s *shuffled) Inbox(_ context.Context, _ ids.CampaignID, after string, limit int) ([]shard.InboxFact, error) {
	return behind(s.inbox, limit, func(f shard.InboxFact) bool { return f.Event > after }), nil
}

func (s *shuffled) Holds(_ context.Context, _ ids.CampaignID, after ids.ReservationID, limit int) ([]shard.HoldFact, error) {
	return behind(s.holds, limit, func(f shard.HoldFact) bool { return f.Reservation > after }), nil
}

func (s *shuffled) Entries(_ context.Context, _ ids.CampaignID, after ids.ReservationID, entry int64, limit int) ([]shard.EntryFact, error) {
	return behind(s.entries, limit, func(f shard.EntryFact) bool { return f.Reservation > after || f.Reservation == after && f.ID > entry }), nil
}

// The join in pages sees exactly what a map of everything would, whatever is missing where a page ends.
func TestMergeIsAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		s, want := &shuffled{}, map[ids.ReservationID][3]int{}
		for i := range r.IntN(40) {
			id := ids.ReservationID(fmt.Sprintf("cell-1.r%026d", i))
			var has [3]int
			if r.IntN(3) > 0 {
				s.inbox, has[0] = append(s.inbox, shard.InboxFact{Event: ids.EventID(id), Reservation: id}), 1
			}
			if r.IntN(3) > 0 {
				s.holds, has[1] = append(s.holds, shard.HoldFact{Reservation: id}), 1
			}
			for range r.IntN(4) {
				has[2]++
				s.entries = append(s.entries, shard.EntryFact{Reservation: id, ID: int64(len(s.entries) + 1)})
			}
			if has != [3]int{} {
				want[id] = has
			}
		}
		m, last := newMerge(s, "", "", 1+r.IntN(5)), ids.ReservationID("")
		for {
			f, err := m.next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if f == nil {
				break
			}
			got := [3]int{0, 0, len(f.entries)}
			if f.inbox != nil {
				got[0] = 1
			}
			if f.hold != nil {
				got[1] = 1
			}
			if got != want[f.id] || f.id <= last {
				t.Fatalf("%s after %s: %v, want %v", f.id, last, got, want[f.id])
			}
			delete(want, f.id)
			last = f.id
		}
		if len(want) > 0 {
			t.Fatalf("not met: %v", want)
		}
	}
}
