package fencer

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/fencing"
)

//go:embed sql/witness.sql
var witnessSQL string

// Witness reads how far the shard came: nothing that was committed before the call is missing in it.
// ErrUnreachable for a server that is a standby yet.
func (f *Fencer) Witness(ctx context.Context) (fencing.Witness, error) {
	var raw []byte
	err := f.read(ctx, "read the witness", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, witnessSQL).Scan(&raw)
	})
	if err != nil {
		return fencing.Witness{}, err
	}
	w, err := fencing.DecodeWitness(raw)
	if err == nil && strings.HasSuffix(w.Identity, "/recovering") {
		err = fmt.Errorf("the server is a standby yet: %w", ErrUnreachable)
	}
	return w, err
}
