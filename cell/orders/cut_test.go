package orders

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
)

// TestCut: whatever comes, runs hold every item once, in order, users of a run differ, a barrier or a
// broken record stands alone, and the bound holds.
func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		var items []item
		offset := int64(0)
		for range rapid.IntRange(0, 30).Draw(t, "n") {
			offset += rapid.Int64Range(1, 3).Draw(t, "gap")
			it := item{offset: offset}
			switch rapid.IntRange(0, 7).Draw(t, "kind") {
			case 0:
				it.barrier = &shard.Barrier{}
			case 1:
				it.broken = &shard.Parking{}
			default:
				user := fmt.Sprintf("u%d", rapid.IntRange(0, 4).Draw(t, "user"))
				it.message = &shard.Message{Offset: offset, Admission: reservation.Admission{User: ids.UserID(user)}}
			}
			items = append(items, it)
		}
		from := rapid.Int64Range(0, offset+1).Draw(t, "from")
		next, covered := from, 0
		for _, r := range cut(items, from, limit) {
			users := map[ids.UserID]bool{}
			for _, m := range r.messages {
				if users[m.User] {
					t.Fatal("a user's second message in a run")
				}
				users[m.User] = true
			}
			alone := r.barrier != nil || r.broken != nil
			if len(r.messages) > limit || alone == (len(r.messages) > 0) || len(r.values) != len(r.messages) {
				t.Fatalf("run %+v", r)
			}
			if r.oldest.offset < next || r.next <= r.oldest.offset {
				t.Fatalf("run [%d, %d) after %d", r.oldest.offset, r.next, next)
			}
			next = r.next
			covered += max(1, len(r.messages))
		}
		want := 0
		for _, it := range items {
			if it.offset >= from {
				want++
			}
		}
		if covered != want {
			t.Fatalf("%d items in runs, %d came", covered, want)
		}
	})
}

func TestHalvesMeet(t *testing.T) {
	r := run{next: 9, values: make([][]byte, 3)}
	for _, o := range []int64{2, 5, 8} {
		r.messages = append(r.messages, shard.Message{Offset: o})
	}
	a, b := r.halves()
	if len(a.messages) != 1 || len(b.messages) != 2 || a.next != 5 || b.next != 9 {
		t.Fatalf("%+v %+v", a, b)
	}
}

func TestVerdict(t *testing.T) {
	at := shard.Position{TopicID: "a", Next: 10, Epoch: 3}
	for name, c := range map[string]struct {
		f  facts
		ok bool
	}{
		"fine":                {facts{"a", 0, 20, -1}, true},
		"at the end":          {facts{"a", 0, 10, -1}, true},
		"at the start":        {facts{"a", 10, 20, 10}, true},
		"another topic":       {facts{"b", 0, 20, -1}, false},
		"retention passed it": {facts{"a", 11, 20, -1}, false},
		"beyond the end":      {facts{"a", 0, 9, -1}, false},
		"epoch ended before":  {facts{"a", 0, 20, 9}, false},
		"epoch ended at it":   {facts{"a", 0, 20, 10}, true},
	} {
		err := verdict(at, c.f)
		if (err == nil) != c.ok || (err != nil && !errors.Is(err, shard.ErrPositionMismatch)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDecodeNeverFails: whatever bytes come, a record is an item, except one of a newer program.
func TestDecodeNeverFails(t *testing.T) {
	good := events.Headers{EventID: "x", Type: events.TypeAdmission, FenceVersion: 1}
	for name, r := range map[string]*kgo.Record{
		"no headers":   {Value: []byte("x")},
		"not a proto":  {Value: []byte{0xff, 0xff}, Headers: good.Render()},
		"empty":        {Headers: good.Render()},
		"unknown type": {Headers: events.Headers{EventID: "x", Type: "surprise", FenceVersion: 1}.Render()},
	} {
		it, err := decode(r)
		if err != nil || it.broken == nil || it.message != nil || it.broken.ErrorClass != classDecode {
			t.Errorf("%s: %+v, %v", name, it, err)
		}
	}
	newer := good.Render()
	for i := range newer {
		if newer[i].Key == events.HeaderSchemaVersion {
			newer[i].Value = []byte("99")
		}
	}
	if _, err := decode(&kgo.Record{Headers: newer}); !errors.Is(err, events.ErrSchema) {
		t.Errorf("newer schema: %v", err)
	}
}
