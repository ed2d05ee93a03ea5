package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

const (
	// maxTries bounds how often one change is tried against concurrent ones.
	maxTries = 24
	// maxOps is etcd's limit on one transaction, compares and puts together.
	maxOps = 128
	// maxBytes bounds the keys and values of one transaction; etcd's own limit is
	// 1.5 MiB for a request with everything in it.
	maxBytes = 1280 << 10
)

// Tx is one try of a change: what it read, and what it will put. It lives as
// long as one call of the middle.
type Tx struct {
	s    *Store
	ask  func(key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) // linearizable, bounded
	read map[string]int64                                                           // key → ModRevision it was read at
	cmps []clientv3.Cmp
	ops  []clientv3.Op

	follow   func(key core.BookKey, seen newest, book core.Book, found bool) error
	created  map[string]int64  // key → CreateRevision it was read at
	books    []core.Book       // put by this transaction
	dropped  []core.BookKey    // deleted by it
	compared []remembered      // newest records that it compares
	checked  bool              // it compares that /restored is not there
	recovers bool              // it is recovery's own
	found    map[string]string // key → state it was read in
	changes  []change          // of states, to be logged once they stand
}

// Update runs the middle and commits what it put, if everything it read is
// unchanged; see the package comment for lost compares and lost answers. It
// gives etcd's revision of the commit, 0 when the middle put nothing. verb names
// the change in errors. The middle may run several times and must have no effect
// but on tx and on variables that it sets anew each time.
func (s *Store) Update(ctx context.Context, verb string, middle func(tx *Tx) error) (int64, error) {
	pause := newPause()
	var last error
	unknown := false
	out := outage{timeout: s.timeout}
	for range maxTries {
		began := s.clock.Now()
		tx := &Tx{s: s, ask: s.asker(ctx, out.patience()), follow: s.follower(ctx), read: map[string]int64{}, created: map[string]int64{}}
		last = middle(tx)
		if last == nil {
			var revision int64
			var done bool
			if revision, done, last = tx.commit(ctx); done {
				tx.tell(ctx)
				return revision, nil
			}
		}
		switch {
		case errors.Is(last, core.ErrUnknownOutcome):
			unknown = true
		case !errors.Is(last, errRetry):
			return 0, fmt.Errorf("%s: %w", verb, last)
		}
		if out.over(last, began, s.clock.Now()) {
			break
		}
		if err := s.clock.Sleep(ctx, pause()); err != nil {
			last = errors.Join(last, err)
			break
		}
	}
	if unknown {
		return 0, fmt.Errorf("%s: %w: %v", verb, core.ErrUnknownOutcome, last) //nolint:errorlint // the sentinel says it
	}
	return 0, fmt.Errorf("%s: %w", verb, last)
}

// outage counts the tries in a row in which etcd did not answer, so that a change
// under an etcd that is gone ends soon and by name, and not with its caller's patience.
type outage struct {
	timeout time.Duration
	since   time.Time // when the first of them began
	tries   int
}

// patience bounds each read of the next try: once etcd was silent for a whole
// time-out, another member is given a third of one.
func (o *outage) patience() time.Duration {
	if o.tries > 0 {
		return o.timeout / 3
	}
	return o.timeout
}

// over takes the outcome of a try and tells whether to give up: after two tries at
// least, and a whole time-out.
func (o *outage) over(outcome error, began, now time.Time) bool {
	if !errors.Is(outcome, core.ErrStoreUnavailable) && !errors.Is(outcome, core.ErrUnknownOutcome) {
		o.tries = 0
		return false
	}
	if o.tries++; o.tries == 1 {
		o.since = began
	}
	return o.tries > 1 && now.Sub(o.since) >= o.timeout
}

// asker reads for one change, each read bounded by patience.
func (s *Store) asker(ctx context.Context, patience time.Duration) func(string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return func(key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return s.kv.Get(ctx, key, opts...)
	}
}

// newPause gives jittered waits from 2 ms to 250 ms.
func newPause() func() time.Duration {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 2*time.Millisecond, 250*time.Millisecond
	b.RandomizationFactor = 0.5
	b.Reset()
	return b.NextBackOff
}

// commit is done when the change stands or there was nothing to put.
func (tx *Tx) commit(ctx context.Context) (revision int64, done bool, err error) {
	if len(tx.ops) == 0 {
		return 0, true, nil
	}
	if n := len(tx.cmps) + len(tx.ops); n > maxOps {
		return 0, false, fmt.Errorf("%w: %d operations in one transaction, at most %d", core.ErrTooLarge, n, maxOps)
	}
	if n := tx.bytes(); n > maxBytes {
		return 0, false, fmt.Errorf("%w: %d bytes in one transaction of %d writes, at most %d", core.ErrTooLarge, n, len(tx.ops), maxBytes)
	}
	ctx, cancel := context.WithTimeout(ctx, tx.s.timeout)
	defer cancel()
	resp, err := tx.s.kv.Txn(ctx).If(tx.cmps...).Then(tx.ops...).Commit()
	if err != nil {
		err, _ := commitError(err)
		return 0, false, err
	}
	if !resp.Succeeded {
		return 0, false, tx.outrun(ctx)
	}
	tx.remember(resp.Header.Revision)
	return resp.Header.Revision, true, nil
}

// bytes is the size of everything that this transaction writes.
func (tx *Tx) bytes() int {
	n := 0
	for _, op := range tx.ops {
		n += len(op.KeyBytes()) + len(op.ValueBytes())
	}
	return n
}

// Now is the store's idea of the time, for records.
func (tx *Tx) Now() time.Time { return tx.s.clock.Now().UTC() }

// Lead makes the change conditional on this leader still leading. A leader that
// lost its key finds core.ErrNotLeader.
func (tx *Tx) Lead(l core.Leader) error {
	kv, err := tx.get(tx.s.keys.leader())
	if err != nil {
		return err
	}
	if kv == nil || kv.CreateRevision != l.CreateRevision || l.CreateRevision == 0 {
		return fmt.Errorf("%w: term %d", core.ErrNotLeader, l.Term.Count)
	}
	return nil
}

// get reads a key, linearizably, and makes the commit conditional on it.
func (tx *Tx) get(key string) (*mvccpb.KeyValue, error) {
	resp, err := tx.ask(key)
	if err != nil {
		return nil, readError("read "+key, err)
	}
	var kv *mvccpb.KeyValue
	revision := int64(0)
	if len(resp.Kvs) > 0 {
		kv = resp.Kvs[0]
		revision = kv.ModRevision
	}
	if _, again := tx.read[key]; !again {
		tx.read[key] = revision
		if kv != nil {
			tx.created[key] = kv.CreateRevision
		}
		tx.cmps = append(tx.cmps, clientv3.Compare(clientv3.ModRevision(key), "=", revision))
	}
	return kv, nil
}

// fetch reads and decodes one key; found is false where there is none.
func fetch[T interface{ Check() error }](tx *Tx, key string, from func(*mvccpb.KeyValue) (T, error)) (value T, found bool, err error) {
	kv, err := tx.get(key)
	if err != nil || kv == nil {
		return value, false, err
	}
	value, err = checked(from(kv))
	if err != nil {
		return value, false, readError("read "+key, err)
	}
	return value, true, nil
}

// put writes a key that this transaction has read.
func (tx *Tx) put(key string, m proto.Message, opts ...clientv3.OpOption) error {
	if _, ok := tx.read[key]; !ok {
		return fmt.Errorf("%w: %s is written without having been read", core.ErrBroken, key)
	}
	value, err := encode(m)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	tx.ops = append(tx.ops, clientv3.OpPut(key, string(value), opts...))
	return nil
}

// remove deletes a key that this transaction has read.
func (tx *Tx) remove(key string) error {
	if _, ok := tx.read[key]; !ok {
		return fmt.Errorf("%w: %s is deleted without having been read", core.ErrBroken, key)
	}
	tx.ops = append(tx.ops, clientv3.OpDelete(key))
	return nil
}

// Cells reads every cell and makes the commit conditional on none having changed
// since: one ranged compare, whatever their number.
func (tx *Tx) Cells() (map[ids.CellID]core.Cell, error) {
	room := tx.s.keys.room(KindCell)
	resp, err := tx.ask(room, clientv3.WithPrefix())
	if err != nil {
		return nil, readError("read cells", err)
	}
	tx.cmps = append(tx.cmps, clientv3.Compare(clientv3.ModRevision(room), "<", resp.Header.Revision+1).WithPrefix())
	cells := make(map[ids.CellID]core.Cell, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		c, err := checked(decodeCell(kv))
		if err != nil {
			tx.s.log.Warn("cell record cannot be read; it takes part in nothing",
				telemetry.Event, "record_quarantined", "key", string(kv.Key), telemetry.Error, err)
			continue
		}
		cells[c.Spec.ID] = c
	}
	return cells, nil
}
