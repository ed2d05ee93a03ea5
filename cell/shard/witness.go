package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// memory is what this process saw of its shard after commits, and whether the shard that answers now
// is trusted to be the same. A shard that shows less, or another history, is in doubt: nothing is
// written until the control plane has said that it is in order (Trust).
type memory struct {
	mu    sync.Mutex
	seen  fencing.Witness
	known bool // anything was seen
	doubt Doubt
	count int // of doubts so far
}

// Doubt is why a shard is not trusted. The zero Doubt: it is.
type Doubt struct {
	// Why in words.
	Why string
	// Lacks: it shows less than was seen, which is evidence; else it is only another history.
	Lacks bool
	// Version is the fence version at which it was seen before.
	Version int64
}

// metKey is where a connection keeps the identity of the server that it met.
const metKey = "cellquota.met"

// recovering ends the identity of a server that is a standby yet.
const recovering = "/recovering"

// greet is the pool's connect hook: it compares what the server shows with what this process saw. It
// fails only with the connection; a shard in doubt is still read, because the hello tells of it.
func (s *Store) greet(ctx context.Context, conn *pgx.Conn) error {
	before := s.memory.snapshot()
	now, _, known, err := look(ctx, conn)
	if err != nil {
		return err
	}
	if known {
		conn.PgConn().CustomData()[metKey] = now.Identity
	}
	s.compare(before, now, known)
	return nil
}

// querier is a connection or the pool.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// look reads how far the shard came; false: its schema is older than step 6, or not there at all.
func look(ctx context.Context, q querier) (w fencing.Witness, raw []byte, known bool, err error) {
	if err := q.QueryRow(ctx, sql("witness_known")).Scan(&known); err != nil || !known {
		return w, nil, false, err
	}
	err = q.QueryRow(ctx, sql("witness_read")).Scan(&raw)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42501" {
		return w, nil, false, nil // the step was taken and its grants come a moment later
	}
	if err == nil {
		w, err = fencing.DecodeWitness(raw)
	}
	return w, raw, err == nil, err
}

// compare holds a reading against what was seen before it began.
func (s *Store) compare(before *fencing.Witness, now fencing.Witness, known bool) {
	switch {
	case known && strings.HasSuffix(now.Identity, recovering): // it cannot be written, and shows what it has got yet
	case before == nil:
		if known {
			s.memory.raise(now)
		}
	case !known:
		s.doubt(Doubt{fmt.Sprintf("it has no schema that this program knows, and was seen at fence version %s of %s", before.Version, before.Identity), true, before.Version.Int64()})
	case before.Lacks(now) != "":
		s.doubt(Doubt{before.Lacks(now), true, before.Version.Int64()})
	case before.Identity != now.Identity:
		s.doubt(Doubt{fmt.Sprintf("it is PostgreSQL %s, %s was seen: another history", now.Identity, before.Identity), false, before.Version.Int64()})
	default:
		s.memory.raise(now)
	}
}

// doubt stops every write of this process and asks for a new registration, once.
func (s *Store) doubt(d Doubt) {
	s.memory.mu.Lock()
	first := s.memory.doubt.Why == ""
	if first || d.Lacks && !s.memory.doubt.Lacks {
		s.memory.doubt = d
		s.memory.count++
	}
	s.memory.mu.Unlock()
	s.writer.Store(nil)
	if !first {
		return
	}
	s.log.Error("the shard is not what this process saw; nothing is written", telemetry.Event, "shard_in_doubt", "detail", d.Why)
	if s.pool != nil {
		s.pool.Reset() // what still speaks to another server goes
	}
	if s.doubted != nil {
		s.doubted(d)
	}
}

// Doubt says why the shard is not trusted; the zero Doubt: it is.
func (s *Store) Doubt() Doubt {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.memory.doubt
}

// Sight is a reading of how far the shard came.
type Sight struct {
	fencing.Witness
	// JSON is the reading in the names of the message cellquota.v1.ShardWitness; nil: its schema is older
	// than step 6, and nothing was read.
	JSON []byte
	// doubts is how many there had been when it was read.
	doubts int
}

// Observe reads how far the shard came and remembers it. A reading that shows less than was seen leaves
// the shard in doubt, and is what Observe answers.
func (s *Store) Observe(ctx context.Context) (Sight, error) {
	before := s.memory.snapshot()
	now, raw, known, err := look(ctx, s.pool)
	if err != nil {
		return Sight{}, translate(err)
	}
	s.compare(before, now, known)
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return Sight{Witness: now, JSON: raw, doubts: s.memory.count}, nil
}

// Trust ends a doubt: the control plane judged this reading and took the process in. After a doubt
// nothing older is remembered. It gives false, and changes nothing, where a new doubt came since the
// reading.
func (s *Store) Trust(seen Sight) bool {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	switch {
	case s.memory.count != seen.doubts:
		return false
	case s.memory.doubt.Why != "" && seen.JSON != nil:
		s.memory.seen, s.memory.doubt = seen.Raise(fencing.Witness{}), Doubt{}
	}
	return s.memory.doubt.Why == ""
}

func (m *memory) snapshot() *fencing.Witness {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known {
		return nil
	}
	w := m.seen.Raise(fencing.Witness{})
	return &w
}

func (m *memory) raise(now fencing.Witness) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.doubt.Why == "" {
		m.seen, m.known = m.seen.Raise(now), true
	}
}

// committed remembers the stock versions that a transaction left. An unknown commit leaves nothing.
func (m *memory) committed(marks map[skuKey]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known || m.doubt.Why != "" {
		return
	}
	for k, version := range marks {
		sku := fencing.SKU{Campaign: string(k.campaign), SKU: string(k.sku)}
		mark := m.seen.Stocks[sku]
		mark.StockVersion = max(mark.StockVersion, version)
		m.seen.Stocks[sku] = mark
	}
}

// trusted refuses a transaction over a connection to a server that this process does not trust.
func (s *Store) trusted(ctx context.Context, conn *pgx.Conn) error {
	met, _ := conn.PgConn().CustomData()[metKey].(string)
	s.memory.mu.Lock()
	doubt, known, identity := s.memory.doubt.Why, s.memory.known, s.memory.seen.Identity
	s.memory.mu.Unlock()
	switch {
	case doubt != "":
		return fmt.Errorf("%w: %s", ErrShardBehind, doubt)
	case met == "" || !known || met == identity:
		return nil
	}
	hangUp(ctx, conn.PgConn()) // the next connection meets the server as it is now
	return fmt.Errorf("%w: the connection was made to %s, the shard is %s", ErrUnavailable, met, identity)
}
