package target

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// ControlPlane is the control plane's services as one role sees them. Close it.
type ControlPlane struct {
	Cells      pb.CellAdminServiceClient
	Fence      pb.FenceServiceClient
	Campaigns  pb.CampaignServiceClient
	Quota      pb.QuotaServiceClient
	Routing    pb.RoutingServiceClient
	Reports    pb.ReportServiceClient
	Operations pb.OperationServiceClient

	closer io.Closer
}

// Over makes one of a connection that is there already.
func Over(conn grpc.ClientConnInterface, closer io.Closer) *ControlPlane {
	return &ControlPlane{
		Cells: pb.NewCellAdminServiceClient(conn), Fence: pb.NewFenceServiceClient(conn),
		Campaigns: pb.NewCampaignServiceClient(conn), Quota: pb.NewQuotaServiceClient(conn),
		Routing: pb.NewRoutingServiceClient(conn), Reports: pb.NewReportServiceClient(conn),
		Operations: pb.NewOperationServiceClient(conn), closer: closer,
	}
}

// Close ends the connection.
func (c *ControlPlane) Close() error {
	if c.closer == nil {
		return nil
	}
	return c.closer.Close()
}

// callTimeout is given to a call whose caller set no deadline.
const callTimeout = 30 * time.Second

// Dial connects as a role. Nothing is sent before the first call.
func (t Target) Dial(r Role) (*ControlPlane, error) {
	token, err := t.token(r)
	if err != nil {
		return nil, err
	}
	o := transport.DialOptions{Dev: t.tls == nil, DefaultTimeout: callTimeout}
	if token != "" {
		o.Token = func(context.Context) (string, error) { return token, nil }
	}
	if t.tls != nil {
		if o.TLS, err = transport.LoadTLS(*t.tls, slog.New(slog.DiscardHandler)); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrConfig, t.Name, err)
		}
	}
	conn, err := transport.DialAny(t.ControlPlanes, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	return Over(conn, conn), nil
}
