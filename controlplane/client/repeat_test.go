package client

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	_ "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Every unary method of the control plane is safe to repeat or named here: a new
// mutation without an id fails this test.
func TestEveryMethodIsRepeatableByItsIDOrReads(t *testing.T) {
	notAgain := []string{"AccessService.Approve", "AccessService.Reject"}
	cells := []string{"AdmissionService", "OrderService", "CellFactsService", "CellReconcileService", "EntryService"} // called through cell/client
	seen := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("cellquota.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				name := string(service.Name()) + "." + string(m.Name())
				if slices.Contains(cells, string(service.Name())) || m.IsStreamingClient() || m.IsStreamingServer() {
					continue
				}
				seen++
				req := dynamicpb.NewMessage(m.Input())
				for _, id := range ids {
					if field := m.Input().Fields().ByName(id); field != nil {
						req.Set(field, protoreflect.ValueOfString("x"))
					}
				}
				got := repeatable("/cellquota.v1."+strings.Replace(name, ".", "/", 1), req)
				if got == slices.Contains(notAgain, name) {
					t.Errorf("%s: repeatable is %v", name, got)
				}
			}
		}
		return true
	})
	if seen < 40 {
		t.Errorf("only %d methods were seen", seen)
	}
}
