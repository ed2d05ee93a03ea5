package admission

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// stageBatch is how many marks or records one pipeline stages.
const stageBatch = 500

// ErrOlderBuild: the mirror is of a newer build than the one to install.
var ErrOlderBuild = errors.New("admission: the mirror is of a newer build")

// ErrStaged: what was staged is not what the snapshot had, or it was lost before
// the switch. Nothing changed; mint a new build.
var ErrStaged = errors.New("admission: the staged build is not whole")

// StockBase is one SKU's stock as a build starts from it.
type StockBase struct {
	SKU        ids.SKUID
	Available  int64 // of the shard's row
	Version    int64 // of that row: effects up to it are counted
	LastNumber int64 // of the last adjustment under the shard's fence version
	Gate       Gate
}

// Mark is the request that holds a user's place.
type Mark struct {
	User        ids.UserID
	State       cellquotav1.RequestState // PENDING_PAYMENT, PAID, CLOSED or MANUAL_REVIEW
	SKU         ids.SKUID
	Request     ids.RequestID
	Reservation ids.ReservationID
	Quantity    int32 // 0: unknown
}

// Record is one answered request.
type Record struct {
	SKU          ids.SKUID
	User         ids.UserID
	Request      ids.RequestID
	Reservation  ids.ReservationID
	Order        ids.OrderID
	State        cellquotav1.RequestState
	Reason       cellquotav1.Reason
	Fingerprint  string
	Quantity     int32
	ExpiresAtMS  int64
	AdmittedAtMS int64
	Version      int64 // of its aggregate
}

// DomainBuckets are the buckets of one traffic domain that this cell owns.
type DomainBuckets struct {
	Domain string
	Set    BucketSet
}

// Image is a whole mirror as the shard's facts make it.
type Image struct {
	Scope     Scope
	Build     ids.Build
	Server    string // Redis processes, from Acknowledge
	Shard     string // shard identity
	Window    Window
	StreamMax int64 // entries at which asks are QUEUE_FULL; 0: no bound of its own
	Stocks    []StockBase
	Buckets   []DomainBuckets
	Marks     iter.Seq2[Mark, error]   // nil: none
	Records   iter.Seq2[Record, error] // nil: none
}

// Install stages the image beside whatever runs and makes it the mirror in one
// step. ErrOlderBuild and ErrStaged leave the running mirror as it was; an error of
// the image's iterators is returned as it is. A repeat of an installed build is no
// error and changes nothing.
func (c *Client) Install(ctx context.Context, im Image) error {
	if err := im.check(); err != nil {
		return err
	}
	// Never stage over what is in use: a repeat would reset its stock.
	present, err := c.metaBuild(ctx, im.Scope)
	if err != nil {
		return err
	}
	switch present.Compare(im.Build) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: not %s", ErrOlderBuild, im.Build)
	}
	k := im.Scope.at(im.Build)
	marks, err := c.stageMarks(ctx, k, orNone(im.Marks))
	if err != nil {
		return err
	}
	if err := c.stageRecords(ctx, k, im); err != nil {
		return err
	}
	if err := c.stageRest(ctx, k, im); err != nil {
		return err
	}
	// Compare before the switch: a driver's retry or a restart between two
	// pipelines must not pass for a whole mirror.
	have, err := c.maint.HLen(ctx, k.marks()).Result()
	if err != nil {
		return translate(err)
	}
	if have != int64(marks)+1 {
		return fmt.Errorf("%w: %d marks staged, %d there", ErrStaged, marks, have-1)
	}
	r, err := switchFunction.one(ctx, c, c.maint, im)
	if err != nil {
		return err
	}
	switch r.Change {
	case Applied, Already:
		return nil
	case OlderBuild:
		return fmt.Errorf("%w: not %s", ErrOlderBuild, im.Build)
	default:
		return fmt.Errorf("%w: a key is missing", ErrStaged)
	}
}

func (im Image) check() error {
	if im.Build.Fence < 1 || im.Build.Count < 1 || len(im.Stocks) == 0 {
		return fmt.Errorf("%w: an image needs a build and at least one SKU", ErrInvalidAsk)
	}
	for _, s := range im.Stocks {
		if im.Scope.SKU != "" && im.Scope.SKU != s.SKU {
			return fmt.Errorf("%w: SKU %s is not of the scope %s", ErrInvalidAsk, s.SKU, im.Scope.Tag())
		}
	}
	return nil
}

// orNone lets a nil iterator stand for an empty one.
func orNone[T any](seq iter.Seq2[T, error]) iter.Seq2[T, error] {
	if seq == nil {
		return func(func(T, error) bool) {}
	}
	return seq
}

// stageMarks writes the marks and the guard and returns how many users there are.
func (c *Client) stageMarks(ctx context.Context, k buildKeys, marks iter.Seq2[Mark, error]) (int, error) {
	n := 0
	pairs := []any{guard, "1"}
	flush := func() error {
		if len(pairs) == 0 {
			return nil
		}
		err := translate(c.maint.HSet(ctx, k.marks(), pairs...).Err())
		pairs = pairs[:0]
		return err
	}
	for m, err := range marks {
		if err != nil {
			return 0, err
		}
		n++
		pairs = append(pairs, string(m.User), m.text())
		if len(pairs) >= 2*stageBatch {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, flush()
}

func (m Mark) text() string {
	return strings.Join([]string{
		strconv.Itoa(int(m.State)), string(m.SKU), string(m.Request), string(m.Reservation), strconv.Itoa(int(m.Quantity)),
	}, "|")
}

// stageRecords writes one hash per answered request.
func (c *Client) stageRecords(ctx context.Context, k buildKeys, im Image) error {
	pipe := c.maint.Pipeline()
	flush := func() error {
		if pipe.Len() == 0 {
			return nil
		}
		_, err := pipe.Exec(ctx)
		pipe = c.maint.Pipeline()
		return translate(err)
	}
	for r, err := range orNone(im.Records) {
		if err != nil {
			return err
		}
		key := k.record(r.SKU, r.Request, r.User)
		pipe.HSet(ctx, key, "state", int32(r.State), "reason", int32(r.Reason), "reservation", string(r.Reservation),
			"order", string(r.Order), "fingerprint", r.Fingerprint, "quantity", r.Quantity, "expires_at_ms", r.ExpiresAtMS,
			"admitted_at_ms", r.AdmittedAtMS, "version", r.Version)
		if im.Window.KeepUntilMS > 0 {
			pipe.Do(ctx, "PEXPIREAT", key, im.Window.KeepUntilMS)
		}
		if pipe.Len() >= stageBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// stageRest writes stock, buckets and the guard of applied.
func (c *Client) stageRest(ctx context.Context, k buildKeys, im Image) error {
	pipe := c.maint.Pipeline()
	pipe.SAdd(ctx, k.applied(), guard)
	for _, s := range im.Stocks {
		pipe.Set(ctx, k.stock(s.SKU), s.Available, 0)
	}
	for _, b := range im.Buckets {
		pipe.Set(ctx, k.buckets(b.Domain), b.Set[:], 0)
	}
	_, err := pipe.Exec(ctx)
	return translate(err)
}

var switchFunction = function[Image, EffectResult]{
	name: "cq2_switch",
	render: func(im Image) ([]string, []any) {
		k := im.Scope.at(im.Build)
		keys := []string{im.Scope.metaKey(), k.marks(), k.applied()}
		args := []any{
			im.Build.String(), im.Build.Fence, im.Build.Count, "fence", im.Build.Fence,
			"run", im.Server, "shard", im.Shard, "stream_max", im.StreamMax,
		}
		args = append(args, windowPairs(im.Window)...)
		for _, s := range im.Stocks {
			keys = append(keys, k.stock(s.SKU))
			args = append(args, "base:"+string(s.SKU), s.Version, "number:"+string(s.SKU), s.LastNumber)
			args = append(args, gatePairs(Gate{SKU: s.SKU, State: s.Gate.State, Bound: s.Gate.Bound})...)
		}
		for _, b := range im.Buckets {
			keys = append(keys, k.buckets(b.Domain))
			args = append(args, "domain:"+b.Domain, 1)
		}
		return keys, args
	},
	decode: effectFunction.decode,
}

// Sweep removes what builds older than keep left behind in a scope, in bounded
// steps, and returns how many keys went. Builds above keep are being staged and
// stay.
func (c *Client) Sweep(ctx context.Context, scope Scope, keep ids.Build) (int64, error) {
	var gone int64
	err := c.eachMaster(ctx, func(ctx context.Context, node redis.Cmdable) error {
		var cursor uint64
		for {
			keys, next, err := node.Scan(ctx, cursor, scope.prefix()+"*", stageBatch).Result()
			if err != nil {
				return translate(err)
			}
			if old := olderThan(keys, scope, keep); len(old) > 0 {
				n, err := node.Unlink(ctx, old...).Result()
				if err != nil {
					return translate(err)
				}
				gone += n
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
	return gone, err
}

// Discard removes a mirror: its head first, so that nobody admits into what is going, then
// every build. It returns how many keys went. For a campaign that is archived: what lives
// on, the hints on unpaid holds, ends by itself.
func (c *Client) Discard(ctx context.Context, scope Scope) (int64, error) {
	head, err := c.maint.Unlink(ctx, scope.metaKey()).Result()
	if err != nil {
		return 0, translate(err)
	}
	gone, err := c.Sweep(ctx, scope, ids.Build{Fence: math.MaxInt64})
	return head + gone, err
}

func olderThan(keys []string, scope Scope, keep ids.Build) []string {
	var old []string
	for _, key := range keys {
		text, _, _ := strings.Cut(strings.TrimPrefix(key, scope.prefix()), ":")
		if build, err := ids.ParseBuild(text); err == nil && build.Compare(keep) < 0 {
			old = append(old, key)
		}
	}
	return old
}
