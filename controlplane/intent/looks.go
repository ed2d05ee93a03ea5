package intent

import (
	"context"
	"fmt"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
)

// Looked writes into the audit that somebody has a given spec looked at, and which
// files that reads and where the password goes. Whoever cannot be written down does
// not look.
func (s *Service) Looked(ctx context.Context, who Caller, spec core.CellSpec) error {
	reason := fmt.Sprintf("looks at a given spec: redis.password_file %q for %s, kafka.sasl.password_file %q for %s, shard.reader_dsn_file %q, shard.fencer_dsn_file %q",
		spec.Redis.PasswordFile, strings.Join(spec.Redis.Addrs, ","), spec.Kafka.SASL.PasswordFile, strings.Join(spec.Kafka.Brokers, ","), spec.Shard.ReaderDSNFile, spec.Shard.FencerDSNFile)
	_, err := s.Store.Update(ctx, "look at "+string(spec.ID), func(tx *store.Tx) error {
		return tx.Audit(who.audit("", "cell "+string(spec.ID), reason))
	})
	return err
}
