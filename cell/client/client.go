// Package client is the only door through which other components call a cell.
//
// Job: one connection to one process of a cell with the three services on it. Every unary call has a
// deadline; refusals are sentinels again (errors.Is(err, rpcstatus.ErrNotFound), rpcstatus.Reason).
//
// Promise: nothing is retried here. An Exchange that ended leaves its unanswered asks of unknown
// outcome, and the caller repeats them under their own ids.
//
// Neighbours: cell/api answers; edges ask for customers, the control plane reads facts.
package client

import (
	"time"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// DefaultTimeout is the deadline of unary calls that have none.
const DefaultTimeout = 3 * time.Second

// Client is a connection to one process of a cell. Safe for concurrent use.
type Client struct {
	Admissions pb.AdmissionServiceClient
	Orders     pb.OrderServiceClient
	Facts      pb.CellFactsServiceClient

	conn *grpc.ClientConn
}

// Dial returns a client of the process at addr. It does not wait for it: the first call connects. A
// zero o.DefaultTimeout is DefaultTimeout. Close it when done.
func Dial(addr string, o transport.DialOptions) (*Client, error) {
	if o.DefaultTimeout == 0 {
		o.DefaultTimeout = DefaultTimeout
	}
	conn, err := transport.Dial(addr, o)
	if err != nil {
		return nil, err
	}
	return &Client{
		Admissions: pb.NewAdmissionServiceClient(conn), Orders: pb.NewOrderServiceClient(conn), Facts: pb.NewCellFactsServiceClient(conn), conn: conn,
	}, nil
}

// Close ends the connection; running calls end with an unknown outcome.
func (c *Client) Close() error { return c.conn.Close() }
