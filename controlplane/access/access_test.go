package access_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
	_ "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// served are the services of the control plane; the others are the cells' own.
var served = []string{
	"CellAdminService", "FenceService", "CampaignService", "QuotaService", "RoutingService", "OperationService", "ReportService", "CellLinkService", "AccessService",
}

// Every method of every service of ours has a row, and no row is left over.
func TestEveryMethodHasARow(t *testing.T) {
	may := func(role, method string) bool {
		return access.Authorize(context.Background(), transport.Principal{Name: "x", Role: role}, method) == nil
	}
	everybody := append(access.Roles(), access.Cell, access.Edge)
	for _, name := range served {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("cellquota.v1." + name))
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			method := fmt.Sprintf("/cellquota.v1.%s/%s", name, methods.Get(i).Name())
			allowed := 0
			for _, role := range everybody {
				if may(role, method) {
					allowed++
				}
			}
			if allowed == 0 {
				t.Errorf("%s: nobody may call it", method)
			}
		}
	}
	if may("sre", "/cellquota.v1.AdmissionService/Admit") || may("sre", "/cellquota.v1.CellAdminService/DropEverything") {
		t.Error("a method without a row may be called")
	}
}

// The rows that guard most, by hand.
func TestWhoMayDoWhat(t *testing.T) {
	const p = "/cellquota.v1."
	rows := []struct {
		method string
		roles  string
	}{
		{"FenceService/FenceCell", "sre"},
		{"FenceService/RestoreCell", "sre"},
		{"CellAdminService/CreateCell", "region-operator sre"},
		{"CampaignService/PublishCampaign", "campaign-manager"},
		{"QuotaService/TopUp", "campaign-manager sre"},
		{"CellLinkService/Link", "cell"},
		{"RoutingService/WatchRoutes", "edge"},
		{"ReportService/Verify", "region-operator campaign-manager sre viewer"},
	}
	for _, r := range rows {
		for _, role := range append(access.Roles(), access.Cell, access.Edge, "", "controlplane") {
			err := access.Authorize(context.Background(), transport.Principal{Name: "x", Role: role}, p+r.method)
			want := role != "" && strings.Contains(" "+r.roles+" ", " "+role+" ")
			if (err == nil) != want || err != nil && !errors.Is(err, rpcstatus.ErrPermissionDenied) {
				t.Errorf("%s as %q: %v, want allowed %v", r.method, role, err, want)
			}
		}
	}
}

func TestRegion(t *testing.T) {
	in := func(role string, regions ...string) context.Context {
		return transport.WithPrincipal(context.Background(), transport.Principal{Name: "x", Role: role, Regions: regions})
	}
	if err := access.Region(in(access.RegionOperator, "east"), "east"); err != nil {
		t.Error(err)
	}
	if err := access.Region(in(access.RegionOperator, "east"), "west"); !errors.Is(err, rpcstatus.ErrPermissionDenied) {
		t.Errorf("another region: %v", err)
	}
	if err := access.Region(in(access.SRE), "west"); err != nil {
		t.Errorf("an sre: %v", err)
	}
	if err := access.Region(context.Background(), "west"); !errors.Is(err, rpcstatus.ErrUnauthenticated) {
		t.Errorf("nobody: %v", err)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "operators.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func digest(token string) string {
	d := sha256.Sum256([]byte(token))
	return hex.EncodeToString(d[:])
}

func TestOperators(t *testing.T) {
	operators, err := access.LoadOperators(write(t, fmt.Sprintf("operators:\n- {name: ann, role: sre, token_sha256: %s}\n- {name: bob, role: region-operator, token_sha256: %s, regions: [east]}\n", digest("one"), digest("two"))))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(headers ...string) (transport.Principal, error) {
		return operators.Authenticate(context.Background(), transport.Caller{Metadata: metadata.MD{"authorization": headers}})
	}
	if p, err := ask("Bearer two"); err != nil || p.Name != "bob" || p.Role != "region-operator" || p.Regions[0] != "east" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, headers := range [][]string{{"Bearer three"}, {"two"}, {"Bearer "}, {}, {"Bearer one", "Bearer two"}, {"Basic two"}, {"Bearer " + digest("one")}} {
		if p, err := ask(headers...); !errors.Is(err, rpcstatus.ErrUnauthenticated) || p.Name != "" {
			t.Errorf("%q: %+v, %v", headers, p, err)
		}
	}
}

func TestOperatorsFileFaults(t *testing.T) {
	for text, want := range map[string]string{
		"operators: [{name: a b, role: sre, token_sha256: " + digest("x") + "}]":                                                           "operators[0].name",
		"operators: [{name: a, role: root, token_sha256: " + digest("x") + "}]":                                                            "operators[0].role",
		"operators: [{name: a, role: sre, token_sha256: abc}]":                                                                             "operators[0].token_sha256",
		"operators: [{name: a, role: sre, token_sha256: " + digest("x") + "}, {name: b, role: viewer, token_sha256: " + digest("x") + "}]": "operators[1].token_sha256: is given twice",
		"operators: [{name: a, role: sre, token: x}]":                                                                                      "token",
		"operators: [{name: a, role: region-operator, token_sha256: " + digest("x") + ", regions: [East]}]":                                "operators[0].regions",
	} {
		if _, err := access.LoadOperators(write(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to name %s", text, err, want)
		}
	}
	if _, err := access.LoadOperators("/nowhere"); err == nil {
		t.Error("a file that is not there was loaded")
	}
}
