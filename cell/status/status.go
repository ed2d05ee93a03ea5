package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

var (
	// ErrNotFound: this cell never accepted such a request of this user.
	ErrNotFound = errors.New("no such request of this user in this cell")
	// ErrUnavailable: it cannot be known now; ask again.
	ErrUnavailable = errors.New("the request's state cannot be read now")
	// ErrReceipt: the receipt is not one of this request.
	ErrReceipt = errors.New("receipt: not valid for this request")
)

// Mirror is the mirror, as far as status goes. *admission.Client is one.
type Mirror interface {
	Lookup(ctx context.Context, asks []admission.LookupAsk) []admission.Result
}

// Shard is the shard, as far as status goes. *shard.Store is one.
type Shard interface {
	LookupRequest(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID, user ids.UserID, request ids.RequestID) (shard.RequestRow, error)
	ListRequests(ctx context.Context, campaign ids.CampaignID, user ids.UserID, limit int) ([]shard.RequestRow, error)
}

// Query names a request by its key. Receipt is the token of its 202, or empty.
type Query struct {
	Scope   admission.Scope
	SKU     ids.SKUID
	User    ids.UserID
	Request ids.RequestID
	Receipt string
	// Direct: the campaign has no mirror; the shard alone is asked.
	Direct bool
}

// Config of an Answerer.
type Config struct {
	Cell ids.CellID
	// ReadRate bounds reads of the shard per second [2,000].
	ReadRate int
	// Timeout bounds one read of the shard [1s].
	Timeout time.Duration
}

// Answerer answers status questions. Safe for concurrent use.
type Answerer struct {
	cfg    Config
	mirror Mirror
	shard  Shard
	keys   *signed.Ring
	clock  clock.Clock
	reads  *rate.Limiter
	behind prometheus.Histogram
}

// New makes an Answerer; keys are the receipt keys.
func New(cfg Config, mirror Mirror, s Shard, keys *signed.Ring, c clock.Clock, reg prometheus.Registerer) (*Answerer, error) {
	if cfg.ReadRate <= 0 {
		cfg.ReadRate = 2000
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = time.Second
	}
	behind, err := newStaleness(reg)
	if err != nil {
		return nil, err
	}
	return &Answerer{
		cfg: cfg, mirror: mirror, shard: s, keys: keys, clock: c, reads: rate.NewLimiter(rate.Limit(cfg.ReadRate), cfg.ReadRate), behind: behind,
	}, nil
}

// Get answers one request: ErrNotFound, ErrUnavailable or ErrReceipt otherwise.
func (a *Answerer) Get(ctx context.Context, q Query) (*pb.RequestView, error) {
	receipt, err := a.receipt(q)
	if err != nil {
		return nil, err
	}
	mirrored := a.lookup(ctx, q)
	if mirrored.Outcome == admission.Replayed && !open(mirrored.State) {
		return a.withReceipt(q, FromMirror(q.Scope.Campaign, mirrored), mirrored.Build), nil
	}
	row, err := a.read(ctx, q)
	if err != nil {
		return nil, err
	}
	if mirrored.Outcome == admission.Replayed {
		a.behind.Observe(max(0, row.OutcomeAge.Seconds())) // 0 without a row
	}
	switch {
	case row.Found:
		return a.withReceipt(q, FromRow(row), row.Build), nil
	case mirrored.Outcome == admission.Replayed:
		return a.withReceipt(q, judge(FromMirror(q.Scope.Campaign, mirrored), mirrored.Build, row), mirrored.Build), nil
	case receipt != nil:
		view := &pb.RequestView{
			RequestId: string(q.Request), CampaignId: string(q.Scope.Campaign), SkuId: string(q.SKU), ReservationId: string(receipt.Reservation()),
			State: pb.RequestState_REQUEST_STATE_QUEUED, AdmittedAtMs: receipt.At.UnixMilli(), Receipt: q.Receipt,
		}
		return judge(view, receipt.Build, row), nil
	case mirrored.Outcome == admission.Clear:
		return nil, ErrNotFound
	}
	return nil, fmt.Errorf("%w: the mirror answers %s", ErrUnavailable, mirrored.Outcome)
}

// lookup asks the mirror; a campaign without one has no request there.
func (a *Answerer) lookup(ctx context.Context, q Query) admission.Result {
	if q.Direct {
		return admission.Result{Outcome: admission.Clear}
	}
	return a.mirror.Lookup(ctx, []admission.LookupAsk{{Scope: q.Scope, SKU: q.SKU, User: q.User, Request: q.Request}})[0]
}

// judge reads an admission without a row, in the order in which its message would be judged.
func judge(v *pb.RequestView, build ids.Build, row shard.RequestRow) *pb.RequestView {
	switch {
	case build.Fence < row.MessagesFrom:
		v.State, v.Reason = pb.RequestState_REQUEST_STATE_REJECTED, pb.Reason_REASON_CELL_FENCED
	case build.Compare(row.RaisedBuild) < 0:
		v.State, v.Reason = pb.RequestState_REQUEST_STATE_REJECTED, pb.Reason_REASON_LOST_ADMISSION
	}
	return v
}

func (a *Answerer) read(ctx context.Context, q Query) (shard.RequestRow, error) {
	if !a.reads.AllowN(a.clock.Now(), 1) {
		return shard.RequestRow{}, fmt.Errorf("%w: status.read_rate of %d per second is used up", ErrUnavailable, a.cfg.ReadRate)
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	row, err := a.shard.LookupRequest(ctx, q.Scope.Campaign, q.SKU, q.User, q.Request)
	if err != nil {
		return shard.RequestRow{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return row, nil
}

// List answers a user's requests that the shard knows, newest first.
func (a *Answerer) List(ctx context.Context, campaign ids.CampaignID, user ids.UserID, limit int) ([]*pb.RequestView, error) {
	if !a.reads.AllowN(a.clock.Now(), 1) {
		return nil, fmt.Errorf("%w: status.read_rate of %d per second is used up", ErrUnavailable, a.cfg.ReadRate)
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	rows, err := a.shard.ListRequests(ctx, campaign, user, limit)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	out := make([]*pb.RequestView, len(rows))
	for i, r := range rows {
		out[i] = FromRow(r)
	}
	return out, nil
}
