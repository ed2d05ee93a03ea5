package outbox_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/cell/admission"
)

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode(t *testing.T, value []byte, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(value, m); err != nil {
		t.Fatal(err)
	}
}

// debit takes a return from the phone's mirror before the shard is asked.
func debit(b *bench, id string, number int64, units int32) {
	b.t.Helper()
	r, err := b.mirror.DebitReturn(b.ctx, admission.Return{
		Scope: admission.Scope{Campaign: campaign, SKU: phone}, SKU: phone, AdjustmentID: id, Number: number, Units: units,
	})
	if err != nil || r.Change != admission.Applied {
		b.t.Fatalf("debit: %s %v", r.Change, err)
	}
}
