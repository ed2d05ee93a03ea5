package admission

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func TestAcceptedThenReplayed(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	first := want(t, m.one(ctx, ask("ann", "r1")), Accepted)
	if first.Reservation != ids.DeriveReservation("double-eleven", testSKU, "ann", "r1", "cell-1", build1) {
		t.Fatalf("reservation %s", first.Reservation)
	}
	// The message that Go appends to is the message that the script wrote.
	page, err := m.Unpublished(ctx, skuScope, 0, "", 10)
	if err != nil || len(page.Broken) != 0 || len(page.Entries) != 1 || page.Next != "" {
		t.Fatalf("page %+v, %v", page, err)
	}
	list := page.Entries
	if string(list[0].Message) != string(first.Granted.Message) || list[0].StreamID != first.Granted.StreamID {
		t.Fatal("stream entry and granted message differ")
	}
	got, err := events.DecodeAdmission(first.Granted.Message)
	if err != nil || got.GetAdmittedAtMs() != first.AdmittedAtMS || !proto.Equal(got.GetPrice(), ask("", "").Price) {
		t.Fatalf("message %v, %v", got, err)
	}
	again := want(t, m.one(ctx, ask("ann", "r1")), Replayed)
	if again.Reservation != first.Reservation || again.State != cellquotav1.RequestState_REQUEST_STATE_ADMITTED || again.Granted != nil {
		t.Fatalf("replay %+v", again)
	}
	if s := m.stock(t, skuScope, testSKU); s != 9 {
		t.Fatalf("stock %d, want 9", s)
	}
}
