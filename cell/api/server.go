package api

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/campaigns"
	"github.com/cellquota/cellquota/cell/payment"
	"github.com/cellquota/cellquota/cell/reconcile"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/status"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Verdict is whether this process may sell, as cell/link sees it.
type Verdict uint8

// The verdicts.
const (
	Sells    Verdict = iota + 1
	Paused           // a dependency is at fault, or the lease is in doubt
	NotReady         // this process cannot judge by time
	Fenced           // it may not write, or its cell settles only
)

// Standing tells whether this process may sell.
type Standing interface {
	MaySell(policy pb.OnLeaseLoss, now time.Time) Verdict
	// Doubt says that a mirror answered FENCED: somebody knows a higher fence version.
	Doubt()
}

// Rules are the campaigns of this process; *campaigns.Reader is one.
type Rules interface {
	Current() *campaigns.Snapshot
	Ready() (age time.Duration, ok bool)
}

// Door decides about asks: the mirror, or the shard alone (*admission.Direct).
type Door interface {
	Admit(ctx context.Context, asks []admission.Ask) []admission.Result
	Precheck(ctx context.Context, asks []admission.PrecheckAsk) []admission.Result
	Lookup(ctx context.Context, asks []admission.LookupAsk) []admission.Result
}

// Baselines tell whether Redis is away and the shard alone sells what a mirror sold.
type Baselines interface {
	Open(scope admission.Scope) bool
}

// Stocks read what the shard has of a SKU; *shard.Store is one.
type Stocks interface {
	Stock(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID) (shard.StockFacts, error)
}

// Mirror decides; *admission.Client is one.
type Mirror interface {
	Door
	Facts(ctx context.Context, scope admission.Scope, sku ids.SKUID) (admission.Facts, error)
}

// Library tells whether Redis has the admission library; *admission.Client is one.
type Library interface {
	Loaded(ctx context.Context) (name string, loaded bool, err error)
}

// Installed tells which version of a campaign's rules the shard has; 0: none.
// *shard.Store is one.
type Installed interface {
	RulesVersion(ctx context.Context, campaign ids.CampaignID) (int64, error)
}

// Log takes what was granted; *relay.Producer is one.
type Log interface {
	Produce(list []admission.Granted, done func(admission.Granted, error))
}

// Statuses answer what became of requests; *status.Answerer is one.
type Statuses interface {
	Get(ctx context.Context, q status.Query) (*pb.RequestView, error)
	List(ctx context.Context, campaign ids.CampaignID, user ids.UserID, limit int) ([]*pb.RequestView, error)
	Sign(q status.Query, build ids.Build, at time.Time) string
}

// Payments change orders; *payment.Service is one.
type Payments interface {
	Start(ctx context.Context, order ids.OrderID, user ids.UserID, id ids.PaymentID) (payment.Attempt, error)
	Callback(ctx context.Context, c payment.Callback) (payment.Outcome, error)
	Cancel(ctx context.Context, order ids.OrderID, user ids.UserID) (shard.Order, error)
	Refund(ctx context.Context, in payment.RefundRequest) (payment.RefundStanding, error)
}

// Orders are read from the shard; *shard.Store is one.
type Orders interface {
	GetOrder(ctx context.Context, order ids.OrderID, user ids.UserID) (shard.Order, error)
	ListOrders(ctx context.Context, user ids.UserID, limit int) ([]shard.Order, error)
}

// Runs keeps what comparisons of the ledgers were asked for; *shard.Store is one.
type Runs interface {
	AskRun(ctx context.Context, r shard.ReconcileRun, reason string) (shard.ReconcileRun, error)
}

// Ledgers repairs findings; *reconcile.Loop is one.
type Ledgers interface {
	Repair(ctx context.Context, a reconcile.Ask) (reconcile.Answer, error)
}

// Settings are the bounds of the package. Zero values take the defaults in brackets.
type Settings struct {
	Cell          ids.CellID
	Instance      string
	Admits        bool          // serve Exchange; a process without the role refuses it
	BatchMax      int           // asks in one pipeline [256]
	BatchWait     time.Duration // answers wait for others of their stream [0]
	Batches       int           // messages being decided at once [64]
	StreamBatches int           // of one stream [16]
	AckWait       time.Duration // longest wait for the log [1s]
	Timeout       time.Duration // longest wait for the mirror [2s]
}

func (s Settings) withDefaults() Settings {
	for _, n := range []struct {
		at  *int
		def int
	}{{&s.BatchMax, 256}, {&s.Batches, 64}, {&s.StreamBatches, 16}} {
		if *n.at <= 0 {
			*n.at = n.def
		}
	}
	if s.AckWait <= 0 {
		s.AckWait = time.Second
	}
	if s.Timeout <= 0 {
		s.Timeout = 2 * time.Second
	}
	return s
}

// Deps are what a server needs of its process.
type Deps struct {
	Standing Standing
	Rules    Rules
	Mirror   Mirror
	// Direct sells campaigns without a mirror, and those whose baseline is open.
	Direct    Door
	Baselines Baselines // nil: none is ever open
	Stocks    Stocks
	Log       Log
	Statuses  Statuses
	Payments  Payments
	Reviews   Reviews
	Orders    Orders
	Gates     Gates
	Desk      Desk
	Entries   Entries
	Permits   *signed.Ring
	// Faults are the names of readiness faults.
	Faults func() []string
	// Library and Installed are asked by Shadow; nil: it says so.
	Library   Library
	Installed Installed
	// Runs keeps full comparisons of the ledgers that were asked for.
	Runs Runs
	// Ledgers repairs what differs between them.
	Ledgers Ledgers
	// Keys are the key sets of this process, by use; for Shadow.
	Keys   []*signed.Ring
	Clock  clock.Clock
	Logger *slog.Logger
}

// Server serves the cell's services. Safe for concurrent use.
type Server struct {
	pb.UnimplementedAdmissionServiceServer
	pb.UnimplementedOrderServiceServer
	pb.UnimplementedCellFactsServiceServer
	pb.UnimplementedCellReconcileServiceServer
	pb.UnimplementedEntryServiceServer

	set Settings
	Deps
	batches chan struct{} // a place for each message being decided
}

// New makes a server.
func New(set Settings, d Deps) *Server {
	set = set.withDefaults()
	return &Server{set: set, Deps: d, batches: make(chan struct{}, set.Batches)}
}

// Register adds the services to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	pb.RegisterAdmissionServiceServer(r, s)
	pb.RegisterOrderServiceServer(r, s)
	pb.RegisterCellFactsServiceServer(r, s)
	pb.RegisterCellReconcileServiceServer(r, s)
	pb.RegisterEntryServiceServer(r, s)
}

// scope is the mirror of a SKU by its campaign's purchase scope.
func scope(c *campaigns.Campaign, sku ids.SKUID) admission.Scope {
	if c.PerSKU {
		return admission.Scope{Campaign: c.ID, SKU: sku}
	}
	return admission.Scope{Campaign: c.ID}
}
