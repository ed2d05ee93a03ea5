package fencer

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/fencing"
)

//go:embed sql/schema_step.sql
var schemaStepSQL string

// Row is the shard's fence row with its term, as read now.
type Row struct {
	Cell         string
	Version      fencing.Version
	MessagesFrom fencing.Version
	State        string // ACTIVE, SETTLE_ONLY or FENCED
	Group        string
	StateSince   time.Time // by the shard's clock
	ShardNow     time.Time // by the shard's clock
	Term         fencing.Term
}

// Row reads the fence row. ErrOtherCell when the shard has none.
func (f *Fencer) Row(ctx context.Context) (Row, error) {
	r, err := row(ctx, f.conn)
	if err != nil && !errors.Is(err, ErrOtherCell) {
		return Row{}, translate("read the fence row", err, false)
	}
	return r, err
}

// SchemaStep reads the newest step of the shard's schema; 0: it has none.
func (f *Fencer) SchemaStep(ctx context.Context) (int64, error) {
	var step int64
	err := f.conn.QueryRow(ctx, schemaStepSQL).Scan(&step)
	return step, translate("read the schema's step", err, false)
}

// Preview reads every stock row as a fence now would find it; Sealed is what it would take out.
func (f *Fencer) Preview(ctx context.Context) ([]fencing.SKUFacts, error) {
	rows, err := f.conn.Query(ctx, stocksSQL)
	if err != nil {
		return nil, translate("preview", err, false)
	}
	facts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (fencing.SKUFacts, error) {
		var s fencing.SKUFacts
		err := row.Scan(&s.Campaign, &s.SKU.SKU, &s.Granted, &s.Available, &s.Reserved, &s.Confirmed)
		s.Sealed = s.Available
		return s, err
	})
	return facts, translate("preview", err, false)
}

// proofJSON is what cellquota.fence_proof answers.
type proofJSON struct {
	Cell     string `json:"cell_id"`
	Version  int64  `json:"fence_version"`
	Identity string `json:"identity"`
	Sealed   []struct {
		ID       string `json:"adjustment_id"`
		Campaign string `json:"campaign_id"`
		SKU      string `json:"sku_id"`
		Units    int64  `json:"units"`
	} `json:"sealed"`
	Stocks []struct {
		Campaign  string `json:"campaign_id"`
		SKU       string `json:"sku_id"`
		Granted   int64  `json:"granted"`
		Available int64  `json:"available"`
		Reserved  int64  `json:"reserved"`
		Confirmed int64  `json:"confirmed"`
	} `json:"stocks"`
	Adjustments []struct {
		ID       string `json:"adjustment_id"`
		Campaign string `json:"campaign_id"`
		SKU      string `json:"sku_id"`
		Version  int64  `json:"fence_version"`
		Number   int64  `json:"number"`
		Kind     string `json:"kind"`
		Units    int64  `json:"units"`
		Outcome  string `json:"outcome"`
	} `json:"adjustments"`
	Positions []struct {
		Topic       string `json:"topic"`
		TopicID     string `json:"topic_id"`
		Partition   int32  `json:"partition"`
		NextOffset  int64  `json:"next_offset"`
		LeaderEpoch int32  `json:"leader_epoch"`
	} `json:"positions"`
}

var (
	kinds    = map[string]fencing.AdjustmentKind{"GRANT": fencing.KindGrant, "RETURN": fencing.KindReturn}
	outcomes = map[string]fencing.Outcome{"APPLIED": fencing.OutcomeApplied, "REFUSED": fencing.OutcomeRefused, "VOIDED": fencing.OutcomeVoided}
)

// decodeProof reads the function's answer. Unknown words stay zero and are refused by Check.
func decodeProof(raw []byte) (fencing.Proof, error) {
	var j proofJSON
	if err := json.Unmarshal(raw, &j); err != nil {
		return fencing.Proof{}, fmt.Errorf("read the proof: %w", err)
	}
	p := fencing.Proof{Cell: j.Cell, Version: fencing.Version(j.Version), Identity: j.Identity}
	seals := map[fencing.SKU]int{}
	for i, s := range j.Sealed {
		seals[fencing.SKU{Campaign: s.Campaign, SKU: s.SKU}] = i
	}
	for _, s := range j.Stocks {
		sku := fencing.SKU{Campaign: s.Campaign, SKU: s.SKU}
		facts := fencing.SKUFacts{SKU: sku, Granted: s.Granted, Available: s.Available, Reserved: s.Reserved, Confirmed: s.Confirmed}
		if i, ok := seals[sku]; ok {
			facts.SealID, facts.Sealed = j.Sealed[i].ID, j.Sealed[i].Units
		}
		p.SKUs = append(p.SKUs, facts)
	}
	for _, a := range j.Adjustments {
		p.Applied = append(p.Applied, fencing.Applied{
			ID: a.ID, SKU: fencing.SKU{Campaign: a.Campaign, SKU: a.SKU}, Version: fencing.Version(a.Version),
			Number: a.Number, Kind: kinds[a.Kind], Units: a.Units, Outcome: outcomes[a.Outcome],
		})
	}
	for _, at := range j.Positions {
		p.Positions = append(p.Positions, fencing.Position{Topic: at.Topic, TopicID: at.TopicID, Partition: at.Partition, NextOffset: at.NextOffset, LeaderEpoch: at.LeaderEpoch})
	}
	return p, nil
}
