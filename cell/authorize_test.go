package cell

import (
	"testing"

	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestWhoMayCall: edges ask for customers and never refund or end a review; the control plane reads and does both, and
// nothing else changes by its word; nobody else gets in.
func TestWhoMayCall(t *testing.T) {
	for _, c := range []struct {
		role, method string
		may          bool
	}{
		{"edge", pb.OrderService_CancelOrder_FullMethodName, true},
		{"edge", pb.OrderService_ApplyPaymentCallback_FullMethodName, true},
		{"edge", pb.OrderService_RefundOrder_FullMethodName, false},
		{"controlplane", pb.OrderService_RefundOrder_FullMethodName, true},
		{"edge", pb.OrderService_ReleaseReservation_FullMethodName, false},
		{"edge", pb.OrderService_ReturnAdmission_FullMethodName, false},
		{"controlplane", pb.OrderService_ReleaseReservation_FullMethodName, true},
		{"controlplane", pb.OrderService_ReturnAdmission_FullMethodName, true},
		{"edge", pb.CellReconcileService_Repair_FullMethodName, false},
		{"edge", pb.CellReconcileService_Run_FullMethodName, false},
		{"cell", pb.CellReconcileService_Repair_FullMethodName, false},
		{"controlplane", pb.CellReconcileService_Repair_FullMethodName, true},
		{"controlplane", pb.CellReconcileService_Run_FullMethodName, true},
		{"controlplane", pb.OrderService_GetOrder_FullMethodName, true},
		{"controlplane", pb.OrderService_CancelOrder_FullMethodName, false},
		{"controlplane", pb.OrderService_ApplyPaymentCallback_FullMethodName, false},
		{"controlplane", pb.CellFactsService_GetGate_FullMethodName, true},
		{"cell", pb.OrderService_RefundOrder_FullMethodName, false},
		{"sre", pb.OrderService_RefundOrder_FullMethodName, false},
	} {
		err := authorize(t.Context(), transport.Principal{Role: c.role, Name: c.role}, c.method)
		if (err == nil) != c.may {
			t.Errorf("%s calls %s: %v", c.role, c.method, err)
		}
	}
}
