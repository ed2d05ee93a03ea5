package fencer

import (
	"context"
	_ "embed"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/fencing"
)

//go:embed sql/recover_begin.sql
var recoverBeginSQL string

//go:embed sql/recover_adjustment.sql
var recoverAdjustmentSQL string

//go:embed sql/recover_messages.sql
var recoverMessagesSQL string

//go:embed sql/recover_finish.sql
var recoverFinishSQL string

// RecoverTo is what a shard that went back in time has to reach.
type RecoverTo struct {
	// Seen is the highest that any witness saw of it. Its version is below the recovery's.
	Seen fencing.Witness
	// Fences are the earlier fences with the positions that they found.
	Fences []fencing.Proof
}

type positionJSON struct {
	Version   int64  `json:"fence_version,omitempty"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	TopicID   string `json:"topic_id"`
	Next      int64  `json:"next_offset"`
}

type buildJSON struct {
	Campaign string `json:"campaign_id"`
	Scope    string `json:"scope"`
	Fence    int64  `json:"fence_version"`
	Count    int64  `json:"count"`
}

func (t RecoverTo) args() ([]any, error) {
	positions, fences, builds := []positionJSON{}, []positionJSON{}, []buildJSON{}
	for at, p := range t.Seen.Positions {
		positions = append(positions, positionJSON{Topic: at.Topic, Partition: at.Partition, TopicID: p.TopicID, Next: p.Next})
	}
	for _, f := range t.Fences {
		for _, p := range f.Positions {
			fences = append(fences, positionJSON{Version: f.Version.Int64(), Topic: p.Topic, Partition: p.Partition, TopicID: p.TopicID, Next: p.NextOffset})
		}
	}
	for scope, b := range t.Seen.Builds {
		builds = append(builds, buildJSON{Campaign: scope.Campaign, Scope: scope.Key, Fence: b.Fence, Count: b.Count})
	}
	args := []any{max(1, t.Seen.Version.Int64())}
	for _, list := range []any{positions, fences, builds} {
		raw, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		args = append(args, string(raw))
	}
	return args, nil
}

// RecoverBegin raises the shard to version for group, settle-only, and notes what has to be reached. A
// shard without a fence row gets one. Idempotent. ErrVersionRefused, ErrOtherCell, ErrWriters.
func (f *Fencer) RecoverBegin(ctx context.Context, cell string, version fencing.Version, group, reason string, to RecoverTo) error {
	args, err := to.args()
	if err != nil {
		return err
	}
	args = append(append([]any{cell, version.Int64(), group}, args...), reason, f.lockWait.Milliseconds())
	return f.inTx(ctx, "begin the recovery", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, recoverBeginSQL, args...)
		return err
	})
}

// RecoverAdjustment applies an adjustment that the shard lost, with the outcome that it had. It gives the
// units that are missing for it; above 0 nothing was done. A repeat gives 0. ErrNoRules.
func (f *Fencer) RecoverAdjustment(ctx context.Context, cell string, version fencing.Version, a fencing.Lost) (missing int64, err error) {
	err = f.inTx(ctx, "replay adjustment "+a.ID, func(tx pgx.Tx) error {
		var number *int64
		if a.Kind != fencing.KindSeal {
			number = &a.Number
		}
		return tx.QueryRow(ctx, recoverAdjustmentSQL, cell, version.Int64(), a.ID, a.SKU.Campaign, a.SKU.SKU, a.Version.Int64(), number,
			a.Kind.String(), a.Units, a.Outcome.String()).Scan(&missing)
	})
	return missing, err
}

// RecoverMessages lets the cell read its log again. Idempotent.
func (f *Fencer) RecoverMessages(ctx context.Context, cell string, version fencing.Version) error {
	return f.inTx(ctx, "read the log again", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, recoverMessagesSQL, cell, version.Int64())
		return err
	})
}

// RecoverFinish ends a recovery and gives the partitions that are not read again yet; above 0 nothing was
// done. A repeat gives 0.
func (f *Fencer) RecoverFinish(ctx context.Context, cell string, version fencing.Version) (unread int, err error) {
	err = f.inTx(ctx, "finish the recovery", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, recoverFinishSQL, cell, version.Int64()).Scan(&unread)
	})
	return unread, err
}
