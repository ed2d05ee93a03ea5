package demo

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func sales() *pb.GetSalesResponse {
	return &pb.GetSalesResponse{
		Books: []*pb.Book{
			{SkuId: "other", SaleLimit: 5, Reserve: 5},
			{SkuId: "phone-x", SaleLimit: 10000, Reserve: 300, Allocations: []*pb.Allocation{{CellId: "cell-1", Granted: 8200}, {CellId: "cell-2", Granted: 1500}}},
		},
		Stocks: []*pb.CellStock{
			{CellId: "cell-1", Stock: &pb.StockFacts{SkuId: "phone-x", Granted: 8200, Available: 100, Reserved: 100, Confirmed: 8000}},
			{CellId: "cell-1", Stock: &pb.StockFacts{SkuId: "other", Granted: 7, Available: 7}},
			{CellId: "cell-2", Stock: &pb.StockFacts{SkuId: "phone-x", Granted: 1500, Available: 0, Reserved: 0, Confirmed: 1500}},
		},
	}
}

func TestLedgerSumsToTheLimit(t *testing.T) {
	l, err := ledgerOf(sales(), "phone-x")
	if err != nil {
		t.Fatal(err)
	}
	if l.SaleLimit != 10000 || l.Reserve != 300 || l.Total.Allocated != 9700 || l.Total.Confirmed != 9500 || l.Rows[0].Available != 100 {
		t.Errorf("ledger %+v", l)
	}
	if f := l.faults(); len(f) > 0 {
		t.Errorf("faults where everything sums: %v", f)
	}
}

func TestEverySumThatDoesNotHoldIsNamed(t *testing.T) {
	for name, step := range map[string]struct {
		change func(*pb.GetSalesResponse)
		says   string
	}{
		"row":               {func(s *pb.GetSalesResponse) { s.Stocks[0].Stock.Reserved++ }, "cell-1: granted 8200 is not available 100 + reserved 101"},
		"book and shard":    {func(s *pb.GetSalesResponse) { s.Books[1].Allocations[0].Granted++; s.Books[1].Reserve-- }, "cell-1: the book allocates 8201"},
		"book":              {func(s *pb.GetSalesResponse) { s.Books[1].Reserve++ }, "reserve 301 + allocated 9700 = 10001"},
		"shards over limit": {func(s *pb.GetSalesResponse) { s.Stocks[2].Stock.Granted++; s.Stocks[2].Stock.Confirmed++ }, "= 10001, the limit is 10000"},
	} {
		t.Run(name, func(t *testing.T) {
			s := sales()
			step.change(s)
			l, err := ledgerOf(s, "phone-x")
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(l.faults(), "\n"); !strings.Contains(got, step.says) {
				t.Errorf("faults %q do not say %q", got, step.says)
			}
		})
	}
}

func TestWhatAShardDidNotSayIsNotSummed(t *testing.T) {
	s := sales()
	s.Stocks[2] = &pb.CellStock{CellId: "cell-2", Unreachable: "connection refused"}
	l, err := ledgerOf(s, "phone-x")
	if err != nil {
		t.Fatal(err)
	}
	if l.Rows[1].Unreachable != "connection refused" {
		t.Errorf("cell-2 is %+v", l.Rows[1])
	}
	if f := l.faults(); len(f) > 0 {
		t.Errorf("a silent shard is no fault of the sums: %v", f)
	}
}

func TestWrittenOffUnitsStayInTheSum(t *testing.T) {
	s := sales()
	s.Books[1].Allocations[1].WrittenOff = 1500
	s.Stocks[2].Stock = &pb.StockFacts{SkuId: "phone-x"}
	l, err := ledgerOf(s, "phone-x")
	if err != nil {
		t.Fatal(err)
	}
	if f := l.faults(); len(f) > 0 {
		t.Errorf("faults %v", f)
	}
}

func TestNoBookIsAnError(t *testing.T) {
	if _, err := ledgerOf(sales(), "phone-y"); err == nil {
		t.Error("a SKU without a book has no table")
	}
}

// TestAnyMovedUnitIsSeen moves one unit of one figure and expects a fault.
func TestAnyMovedUnitIsSeen(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := sales()
		stock := s.Stocks[rapid.SampledFrom([]int{0, 2}).Draw(rt, "shard")].Stock
		figure := rapid.SampledFrom([]*int32{&stock.Granted, &stock.Available, &stock.Reserved, &stock.Confirmed, &s.Books[1].Reserve, &s.Books[1].SaleLimit, &s.Books[1].Allocations[0].Granted}).Draw(rt, "figure")
		*figure += rapid.SampledFrom([]int32{-1, 1, 17}).Draw(rt, "by")
		l, err := ledgerOf(s, "phone-x")
		if err != nil {
			rt.Fatal(err)
		}
		if len(l.faults()) == 0 {
			rt.Fatalf("nobody noticed: %+v", l)
		}
	})
}
