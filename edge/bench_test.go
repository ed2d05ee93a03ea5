package edge

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/cellquota/cellquota/edge/client"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// BenchmarkCustomer is what one customer costs who claims a permit and is refused by his home cell,
// client, edge and fake cell together on one machine.
func BenchmarkCustomer(b *testing.B) {
	r := start(b)
	r.level.Set(slog.LevelInfo)
	for _, c := range r.cells {
		c.Script(func(a *cq.Ask) *cq.Answer {
			if a.GetPrecheck() != nil {
				return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_CLEAR}
			}
			return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT, StockLeft: 1}
		})
	}
	var next atomic.Int64
	b.SetParallelism(64)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			user := fmt.Sprintf("bench-%d", next.Add(1))
			token := r.token(user)
			p, a, err := r.client.Permit(context.Background(), token, campaign, sku)
			if err != nil || a.Status != 201 {
				b.Fatalf("%v %d %s", err, a.Status, a.Body)
			}
			_, a, err = r.client.Buy(context.Background(), token, campaign, sku, client.Try{RequestID: "r1", Quantity: 1, Permit: p.Permit})
			if err != nil || a.Status != 409 {
				b.Fatalf("%v %d %s", err, a.Status, a.Body)
			}
		}
	})
}
