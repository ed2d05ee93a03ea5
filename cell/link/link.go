package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/campaigns"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Shard is the shard as the link needs it; *shard.Store is one.
type Shard interface {
	ReadFence(ctx context.Context) (shard.Fence, error)
	Identity(ctx context.Context) (string, error)
	Writer() (shard.Writer, bool)
	SetWriter(w shard.Writer)
	DropWriter()
	TryReporterLock(ctx context.Context) (bool, error)
	GiveUpReporterLock()
	RaiseTerm(ctx context.Context, count int64, id string) error
	Stocks(ctx context.Context) ([]shard.StockFacts, error)
	InstallRules(ctx context.Context, termCount int64, termID string, rules *pb.CampaignRules) (shard.RulesOutcome, error)
	SetSwitch(ctx context.Context, termCount int64, termID string, in *pb.CellSwitch) error
	ApplyAdjustment(ctx context.Context, a shard.Adjustment) (shard.AdjustmentResult, error)
	Observe(ctx context.Context) (shard.Sight, error)
	Doubt() shard.Doubt
	Trust(seen shard.Sight) bool
	RecordBookChange(ctx context.Context, termCount int64, termID string, campaign ids.CampaignID, sku ids.SKUID, record string) error
}

// Mirror is the mirror as the link needs it; *admission.Client is one.
type Mirror interface {
	DebitReturn(ctx context.Context, r admission.Return) (admission.EffectResult, error)
	CreditReturn(ctx context.Context, r admission.Return) (admission.EffectResult, error)
	Facts(ctx context.Context, scope admission.Scope, sku ids.SKUID) (admission.Facts, error)
}

// Rules is the process's view of campaigns; *campaigns.Reader is one.
type Rules interface {
	Current() *campaigns.Snapshot
	Changed() <-chan struct{}
	Ready() (age time.Duration, ok bool)
	Nudge()
}

// Ways opens a connection to a replica. The link closes it.
type Ways interface {
	Dial(addr string) (*grpc.ClientConn, error)
}

// Config of a Link. Zero durations take the defaults of the configuration keys link.* and report.*.
type Config struct {
	Cell      ids.CellID
	Instance  string
	Group     string
	Advertise string
	Roles     []string
	Addrs     []string // replicas of the control plane; at least one

	Keepalive  time.Duration // 1 s
	Timeout    time.Duration // longest silence of the leader; 5 s
	BackoffMin time.Duration // 200 ms
	BackoffMax time.Duration // 5 s
	Report     time.Duration // 200 ms
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		at  *time.Duration
		def time.Duration
	}{
		{&c.Keepalive, time.Second},
		{&c.Timeout, 5 * time.Second},
		{&c.BackoffMin, 200 * time.Millisecond},
		{&c.BackoffMax, 5 * time.Second},
		{&c.Report, 200 * time.Millisecond},
	} {
		if *d.at <= 0 {
			*d.at = d.def
		}
	}
	return c
}

// Deps of a Link.
type Deps struct {
	Shard    Shard
	Mirror   Mirror
	Rules    Rules
	Ways     Ways
	Standing *Standing
	Bell     *Bell
	// Ready says whether this process serves a campaign, and if not, what is missing.
	Ready func(c *campaigns.Campaign) (ready bool, detail string)
	// Faults are the names of readiness faults for KeepAlive.
	Faults func() []string
	// Rebuild makes a campaign's mirrors anew, or the one of a SKU, once for each id, and tells whether
	// they may be admitted into; nil: this process cannot.
	Rebuild func(ctx context.Context, id string, campaign ids.CampaignID, sku ids.SKUID) (done bool, err error)
	// Keys names the signing keys that this process has, for KeepAlive; nil: it tells of none.
	Keys func() []string
	// KeyStates is told what the leader says of signing keys; nil: nobody wants to know.
	KeyStates func([]*pb.KeyInfo)
	Clock     clock.Clock
	Logger    *slog.Logger
}

// Link keeps the stream. Run is its only goroutine from outside.
type Link struct {
	cfg Config
	Deps
	next   int         // which replica comes next
	hint   string      // leader's address, from a refusal
	barred int64       // fence version under which this process was refused
	seen   int64       // fence version of the last Hello
	shown  shard.Sight // what it showed of the shard
	silent int         // tries in a row that no leader answered
	unsent *results
}

// New makes a link; Run must run.
func New(cfg Config, d Deps) *Link {
	return &Link{cfg: cfg.withDefaults(), Deps: d, unsent: newResults()}
}

// Run keeps a stream to the leader until ctx ends. No failure ends it.
func (l *Link) Run(ctx context.Context) error {
	pause := l.cfg.BackoffMin
	for ctx.Err() == nil {
		began := l.Clock.Now()
		err := l.once(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the stream ended because this process stops
		}
		if l.Clock.Now().Sub(began) > l.cfg.Timeout {
			pause = l.cfg.BackoffMin // it held: this is a new trouble
		}
		l.ended(ctx, err)
		limit := l.cfg.BackoffMax
		if notLeader(err) {
			limit = min(limit, electionPause) // a leader comes soon, and this cell should be there
		}
		pause = min(pause, limit)
		if l.hint == "" || pause == limit { // else it was told where to go: at once
			l.wait(ctx, pause/2+rand.N(pause))
		}
		pause = min(2*pause, limit)
	}
	return nil
}

// electionPause bounds the pauses while the control plane has no leader.
const electionPause = 500 * time.Millisecond

func notLeader(err error) bool {
	var refused *Refused
	return errors.As(err, &refused) && refused.Code == pb.RefusalCode_REFUSAL_CODE_NOT_LEADER
}

// wait waits for d or until somebody asks for a new registration.
func (l *Link) wait(ctx context.Context, d time.Duration) {
	timer := l.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-l.Bell.rung:
	case <-ctx.Done():
	}
}

// once dials one replica and keeps its stream until it ends.
func (l *Link) once(ctx context.Context) error {
	addr := l.target()
	conn, err := l.Ways.Dial(addr)
	if err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	defer func() { _ = conn.Close() }()
	if err := l.session(ctx, pb.NewCellLinkServiceClient(conn)); err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	return nil
}

// target is the leader where it is known, else the next replica.
func (l *Link) target() string {
	if l.hint != "" {
		addr := l.hint
		l.hint = ""
		return addr
	}
	addr := l.cfg.Addrs[l.next%len(l.cfg.Addrs)]
	l.next++
	return addr
}

// ended draws the consequences of a stream's end, by its cause.
func (l *Link) ended(ctx context.Context, err error) {
	cause := "the stream ended"
	if err != nil {
		cause = err.Error()
	}
	l.Standing.parted(cause)
	l.silent++
	if !unanswered(err) {
		l.silent = 0
	}
	var refused *Refused
	switch {
	case notLeader(err) && errors.As(err, &refused):
		l.hint = refused.Leader
	case errors.As(err, &refused):
		if refused.final() {
			l.barred = l.seen
			l.Shard.DropWriter()
		}
		l.Logger.WarnContext(ctx, "registration refused", telemetry.Event, "link_refused", "code", refused.Code.String(), telemetry.Error, refused.Detail)
	default:
		l.Logger.InfoContext(ctx, "stream to the control plane ended", telemetry.Event, "link_ended", telemetry.Error, cause, telemetry.Retryable, true)
	}
	if l.silent >= len(l.cfg.Addrs) {
		l.adopt(ctx)
	}
}

// unanswered tells whether no leader had a word for this process: nobody was reached, nobody leads, or
// the one who should does not answer. A stream that stood, or a refusal, is an answer.
func unanswered(err error) bool {
	return notLeader(err) || errors.Is(err, errSilent) || errors.Is(err, rpcstatus.ErrUnavailable) || errors.Is(err, rpcstatus.ErrDeadline)
}

// Refused is a registration that the leader refused.
type Refused struct {
	Code   pb.RefusalCode
	Detail string
	Leader string // NOT_LEADER: where to go
}

// Error names code and detail.
func (r *Refused) Error() string { return "registration refused: " + r.Code.String() + ": " + r.Detail }

// final refusals mean that another writer may exist or the shard is not to be trusted.
func (r *Refused) final() bool {
	switch r.Code {
	case pb.RefusalCode_REFUSAL_CODE_FENCED, pb.RefusalCode_REFUSAL_CODE_OTHER_GROUP, pb.RefusalCode_REFUSAL_CODE_REGRESSED:
		return true
	default:
		return false
	}
}
