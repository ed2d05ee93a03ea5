package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Options say how the control plane is reached.
type Options struct {
	// Addrs are the replicas; any of them serves.
	Addrs []string
	// Dev allows plain text on this machine.
	Dev bool
	// TLS is the caller's identity; required unless Dev.
	TLS *transport.TLS
	// Workload is "cell/ID" or "edge/ID" for our own processes; empty for operators.
	Workload string
	// Token is an operator's bearer token; empty for our own processes.
	Token string
	// Timeout is given to calls that have no deadline; 0: 15 s.
	Timeout time.Duration
	// Dial replaces the connection's options for a test; nil: none.
	Dial func(*transport.DialOptions)
}

// Client holds the connections and the services on them. Safe for concurrent use.
// Close it when done.
type Client struct {
	conn way

	Cells      pb.CellAdminServiceClient
	Fences     pb.FenceServiceClient
	Recovery   pb.RecoveryServiceClient
	Campaigns  pb.CampaignServiceClient
	Quota      pb.QuotaServiceClient
	Routing    pb.RoutingServiceClient
	Reports    pb.ReportServiceClient
	Operations pb.OperationServiceClient
	Access     pb.AccessServiceClient
	Orders     pb.OrderServiceClient // RefundOrder, ReleaseReservation, ReturnAdmission
	Reconcile  pb.ReconcileServiceClient
	CellLink   pb.CellLinkServiceClient
}

const defaultTimeout = 15 * time.Second

// Dial makes a client. It does not wait for a replica: the first call connects.
func Dial(o Options) (*Client, error) {
	options := transport.DialOptions{
		Dev: o.Dev, TLS: o.TLS, Workload: o.Workload, DefaultTimeout: o.Timeout, WaitForReady: true, Pulse: pulse, MaxMessage: transport.MaxSnapshot,
	}
	if options.DefaultTimeout == 0 {
		options.DefaultTimeout = defaultTimeout
	}
	if o.Token != "" {
		options.Token = func(context.Context) (string, error) { return o.Token, nil }
	}
	if o.Dial != nil {
		o.Dial(&options)
	}
	conn, err := dial(o.Addrs, options)
	if err != nil {
		return nil, err
	}
	return &Client{
		conn: conn, Cells: pb.NewCellAdminServiceClient(conn), Fences: pb.NewFenceServiceClient(conn), Recovery: pb.NewRecoveryServiceClient(conn),
		Campaigns: pb.NewCampaignServiceClient(conn), Quota: pb.NewQuotaServiceClient(conn), Routing: pb.NewRoutingServiceClient(conn),
		Reports: pb.NewReportServiceClient(conn), Operations: pb.NewOperationServiceClient(conn), Access: pb.NewAccessServiceClient(conn),
		Orders: pb.NewOrderServiceClient(conn), Reconcile: pb.NewReconcileServiceClient(conn), CellLink: pb.NewCellLinkServiceClient(conn),
	}, nil
}

// way is how calls go out: one connection, or one to each of several replicas.
type way interface {
	grpc.ClientConnInterface
	Close() error
}

func dial(addrs []string, o transport.DialOptions) (way, error) {
	switch len(addrs) {
	case 0:
		return nil, errors.New("no address of the control plane")
	case 1:
		return transport.Dial(addrs[0], o)
	default:
		return newFailover(addrs, o)
	}
}

// Close ends the connections; running calls fail.
func (c *Client) Close() error { return c.conn.Close() }
