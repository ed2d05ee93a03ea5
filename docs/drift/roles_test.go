package drift

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/internal/transport"
	_ "github.com/cellquota/cellquota/proto/cellquota/v1" // the services
)

// cells serve these; nobody's role is asked there, only whether the caller is an
// edge or the control plane. Of OrderService a replica serves one call too.
var cellServices = map[protoreflect.Name]bool{"AdmissionService": true, "CellFactsService": true, "CellReconcileService": true, "EntryService": true}

// TestRoles asks the control plane's authoriser about every role and every method of
// every service it has.
func TestRoles(t *testing.T) {
	t.Parallel()
	r := house(t)
	roles := append(access.Roles(), access.Cell, access.Edge, access.ControlPlane)
	var table strings.Builder
	table.WriteString("| RPC | " + strings.Join(roles, " | ") + " |\n|---|" + strings.Repeat("---|", len(roles)) + "\n")
	methods := 0
	for _, service := range services() {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			fmt.Fprintf(&table, "| `%s.%s` |", service.Name(), method.Name())
			for _, role := range roles {
				may := ""
				if access.Authorize(t.Context(), transport.Principal{Role: role}, fmt.Sprintf("/%s/%s", service.FullName(), method.Name())) == nil {
					may = "yes"
				}
				table.WriteString(" " + may + " |")
			}
			table.WriteString("\n")
			methods++
		}
	}
	if methods < 20 {
		t.Fatalf("only %d methods were found", methods)
	}
	r.generated(t, "docs/reference/roles.md", "roles", table.String())
}

// services are the control plane's, in the order of their names.
func services() []protoreflect.ServiceDescriptor {
	byName := map[string]protoreflect.ServiceDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage("cellquota.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			if s := f.Services().Get(i); !cellServices[s.Name()] {
				byName[string(s.Name())] = s
			}
		}
		return true
	})
	all := make([]protoreflect.ServiceDescriptor, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, byName[name])
	}
	return all
}
