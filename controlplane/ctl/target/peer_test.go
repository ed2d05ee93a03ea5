package target

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// poser is whoever listens; it notes whether a token reached it.
type poser struct {
	pb.UnimplementedReportServiceServer

	asked bool
}

func (p *poser) GetStatus(context.Context, *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	p.asked = true
	return &pb.GetStatusResponse{}, nil
}

// serveAs listens under a certificate of this name.
func (p *poser) serveAs(t *testing.T, files testkit.PEMFiles) string {
	t.Helper()
	identity, err := transport.LoadTLS(transport.TLSFiles{CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	o := transport.ServerOptions{TLS: identity, Authenticator: func(_ context.Context, c transport.Caller) (transport.Principal, error) {
		_, ok := c.Bearer()
		p.asked = p.asked || ok
		return transport.Principal{Name: "ann", Role: "sre"}, nil
	}}
	l, err := transport.Listen("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	server := transport.NewServer(o)
	pb.RegisterReportServiceServer(server, p)
	ctx, cancel := context.WithCancel(context.Background())
	group := lifecycle.New(ctx, slog.New(slog.DiscardHandler))
	group.Go("grpc", transport.Serve(server, l))
	t.Cleanup(func() { cancel(); _ = group.Wait(time.Second) })
	return l.Addr().String()
}

// An operator's token is for the control plane: a cell, an edge or another domain's
// process whose certificate the same authorities signed gets no call.
func TestOnlyTheControlPlaneGetsTheToken(t *testing.T) {
	ca := testkit.NewAuthority(t)
	token := write(t, "secret\n")
	for name, row := range map[string]struct {
		server, domain string
		ok             bool
	}{
		"the control plane":         {"spiffe://cellquota/controlplane/cp-1", "", true},
		"of the domain that is set": {"spiffe://shop.example/controlplane/cp-1", "shop.example", true},
		"of another domain":         {"spiffe://elsewhere/controlplane/cp-1", "", false},
		"a cell":                    {"spiffe://cellquota/cell/cell-1", "", false},
		"an edge":                   {"spiffe://cellquota/edge/e1", "", false},
		"nobody":                    {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			if row.server != "" {
				names = append(names, row.server)
			}
			p := &poser{}
			files := ca.Issue(t.TempDir(), names...)
			text := fmt.Sprintf("contexts: {far: {control_planes: [%q], token_file: %q, trust_domain: %q, tls: {ca_file: %q}}}", p.serveAs(t, files), token, row.domain, files.CA)
			far, err := Find(Options{Context: "far", Env: env(), ConfigFile: write(t, text)})
			if err != nil {
				t.Fatal(err)
			}
			c, err := far.Dial(SRE)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			_, err = c.Reports.GetStatus(testkit.Deadline(t), &pb.GetStatusRequest{})
			if row.ok != (err == nil) || !row.ok && !errors.Is(err, rpcstatus.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			if p.asked != row.ok {
				t.Errorf("the token was shown: %v", p.asked)
			}
		})
	}
}
