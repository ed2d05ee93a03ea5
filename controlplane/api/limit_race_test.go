package api_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// K29: of two changes of one limit at once that expect the same version exactly one stands; the other is told
// the version that there is now.
func TestK29TwoChangesOfOneLimitAtOnce(t *testing.T) {
	r, manager := selling(t)
	key := core.BookKey{Campaign: "c", SKU: "phone-x"}
	for round := range 8 {
		before, err := r.store.Book(testkit.Deadline(t), key)
		if err != nil {
			t.Fatal(err)
		}
		limits := [2]int32{int32(9_990 - 20*round), int32(9_980 - 20*round)}
		var answers [2]*pb.SetSaleLimitResponse
		var errs [2]error
		var both sync.WaitGroup
		begin := make(chan struct{})
		for i, limit := range limits {
			both.Go(func() {
				<-begin
				answers[i], errs[i] = manager.Campaigns.SetSaleLimit(testkit.Deadline(t), &pb.SetSaleLimitRequest{
					OperationId: fmt.Sprintf("l-%d-%d", round, i), CampaignId: "c", SkuId: "phone-x", SaleLimit: limit, ExpectedVersion: before.Version, Reason: "r",
				})
			})
		}
		close(begin)
		both.Wait()
		won := 0
		if errs[0] != nil {
			won = 1
		}
		if lost := errs[1-won]; errs[won] != nil || status.Code(lost) != codes.Aborted || rpcstatus.Reason(lost) != "VERSION_CONFLICT" ||
			rpcstatus.Metadata(lost)["version"] != strconv.FormatInt(before.Version+1, 10) {
			t.Fatalf("round %d: %v and %v", round, errs[0], errs[1])
		}
		after, err := r.store.Book(testkit.Deadline(t), key)
		if err != nil || after.Version != before.Version+1 || after.SaleLimit.Int64() != int64(limits[won]) || answers[won].GetBook().GetSaleLimit() != limits[won] {
			t.Fatalf("round %d: limit %s at version %d, %v; want %d at %d", round, after.SaleLimit, after.Version, err, limits[won], before.Version+1)
		}
	}
}
