package check

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cellquota/cellquota/cell/shard/migrations"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/postgres"
	"github.com/cellquota/cellquota/internal/secretfile"
)

//go:embed role.sql
var roleSQL string

//go:embed clock.sql
var clockSQL string

//go:embed server.sql
var serverSQL string

//go:embed privileges.sql
var privilegesSQL string

//go:embed step.sql
var stepSQL string

//go:embed fence.sql
var fenceSQL string

// The roles of a shard (contract, section 1).
const (
	roleReader = "cellquota_reader"
	roleFencer = "cellquota_fencer"
)

// shard looks at the cell's PostgreSQL as its reader and as its fencer.
func (c Checker) shard(ctx context.Context, s Subject, p *part) {
	if conn := c.connect(ctx, "reader", s.Spec.Shard.ReaderDSNFile, roleReader, p); conn != nil {
		c.settingsOf(ctx, conn, s.Spec.Shard, p)
		closed(ctx, conn)
	}
	conn := c.connect(ctx, "fencer", s.Spec.Shard.FencerDSNFile, roleFencer, p)
	if conn == nil {
		return
	}
	defer closed(ctx, conn)
	if c.schema(ctx, conn, p) {
		c.privileges(ctx, conn, p)
		c.fence(ctx, conn, s, p)
	}
}

func closed(ctx context.Context, conn *pgx.Conn) { _ = conn.Close(context.WithoutCancel(ctx)) }

// connect opens the shard read-only under the file's address, and judges the role.
func (c Checker) connect(ctx context.Context, who, file, role string, p *part) *pgx.Conn {
	field := "shard." + who + "_dsn_file"
	dsn, err := secretfile.Read(ctx, file)
	if err != nil {
		p.saw(field, secretfile.Class(err), false, secretfile.Rule)
		return nil
	}
	cfg, err := postgres.Parse(string(dsn), postgres.Policy{Encrypted: c.encrypted})
	if err != nil {
		seen := "its address can be read"
		if !errors.Is(err, postgres.ErrPlainText) {
			seen = "its address cannot be read"
		}
		p.saw(field, seen, false, err.Error())
		return nil
	}
	cfg.ConnectTimeout = c.cfg.Timeout
	cfg.RuntimeParams["application_name"] = "cellquota-check"
	cfg.RuntimeParams["default_transaction_read_only"] = "on"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil { // its text holds user, database and address
		p.silent("shard as "+who, refusal(err))
		return nil
	}
	var user string
	var super bool
	if err := conn.QueryRow(ctx, roleSQL).Scan(&user, &super); err != nil {
		p.silent("shard as "+who, refusal(err))
		closed(ctx, conn)
		return nil
	}
	p.saw("shard as "+who, connected(user, role, super), !super, "must connect as "+role+": a superuser is held back by nothing")
	return conn
}

// connected says under what role without its name, unless that is the contract's: it
// stands in the address.
func connected(user, role string, super bool) string {
	switch {
	case super:
		return "connected as a superuser"
	case user == role:
		return "connected as " + role
	default:
		return "connected under another name than " + role
	}
}

// refusal is the class of a connection's error, without the text.
func refusal(err error) error {
	var dns *net.DNSError
	var timeout net.Error
	switch state := code(err); {
	case state != "":
		return fmt.Errorf("refused with SQLSTATE %s", state)
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("no answer in time")
	case errors.As(err, &dns):
		return errors.New("its host has no address")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("connection refused")
	default:
		return errors.New("no connection")
	}
}

// settingsOf looks at what is the same for every role of the server.
func (c Checker) settingsOf(ctx context.Context, conn *pgx.Conn, spec core.ShardSpec, p *part) {
	var commit, names string
	var standbys int
	var recovering bool
	if err := conn.QueryRow(ctx, serverSQL).Scan(&commit, &names, &standbys, &recovering); err != nil {
		p.silent("shard settings", err)
		return
	}
	p.saw("shard role", map[bool]string{true: "standby", false: "primary"}[recovering], !recovering, "must be the primary: nothing can be written here")
	replicated := spec.Replicated || standbys > 0
	synchronous := names != "" && commit != "off" && commit != "local"
	p.saw("shard synchronous commit", fmt.Sprintf("synchronous_commit %s, synchronous_standby_names %q, %d standbys", commit, names, standbys), !replicated || synchronous,
		"a replicated shard must commit to a standby, or a failover loses orders: set synchronous_standby_names and synchronous_commit on, or shard.replicated false without standbys")
	if spec.Replicated {
		p.saw("shard standbys", fmt.Sprint(standbys), standbys > 0, "shard.replicated asks for a standby that streams: without one every commit waits")
	}
	c.readClock(ctx, p, "shard", func(ctx context.Context) (at time.Time, err error) {
		return at, conn.QueryRow(ctx, clockSQL).Scan(&at)
	})
}

// schema judges the schema's step; false: what is in it cannot be looked at.
func (c Checker) schema(ctx context.Context, conn *pgx.Conn, p *part) bool {
	own, err := migrations.Latest()
	if err != nil {
		p.silent("schema of this program", err)
		return false
	}
	var step int64
	err = conn.QueryRow(ctx, stepSQL).Scan(&step)
	const run = ": run cellquotad migrate up and create-roles"
	switch {
	case code(err) == "42P01" || code(err) == "3F000":
		p.saw("schema", "not there", false, fmt.Sprintf("must be at step %d%s", own, run))
		return false
	case code(err) == "42501":
		p.saw("schema", "the fencer may not read it", false, "privileges must be granted"+run)
		return false
	case err != nil:
		p.silent("schema", err)
		return false
	}
	ok := step == own || step == own+1 // a newer program runs on it one day; an older schema lacks what this one uses
	p.saw("schema", fmt.Sprintf("at step %d, this program at %d", step, own), ok, fmt.Sprintf("must be at step %d or %d%s", own, own+1, run))
	return step > 0
}

// privileges judges what the three roles may do, by the catalogue.
func (c Checker) privileges(ctx context.Context, conn *pgx.Conn, p *part) {
	rows, err := conn.Query(ctx, privilegesSQL)
	if err != nil {
		p.silent("privileges", err)
		return
	}
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		p.silent("privileges", err)
		return
	}
	seen := "as they must be"
	if len(wrong) > 0 {
		seen = strings.Join(wrong, "; ")
	}
	p.saw("privileges", seen, len(wrong) == 0, "each role must have its own and no more: run cellquotad migrate create-roles")
}

// fence judges the fence row against the record.
func (c Checker) fence(ctx context.Context, conn *pgx.Conn, s Subject, p *part) {
	var cell, state, group string
	var version int64
	err := conn.QueryRow(ctx, fenceSQL).Scan(&cell, &version, &state, &group)
	fresh := s.Cell == nil || s.Cell.State == core.CellProvisioned
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		p.saw("fence row", "there is none", fresh, "must be there: provision the cell")
		return
	case err != nil:
		p.silent("fence row", err)
		return
	}
	seen := fmt.Sprintf("cell %s, fence version %d, %s, group %s", cell, version, state, group)
	want := expected(s)
	ok := cell == string(s.Spec.ID) && version >= want.least && version <= want.most && (want.state == "" || state == want.state) && (want.group == "" || group == want.group)
	p.saw("fence row", seen, ok, "must be "+want.String()+": the shard is another cell's, was fenced, or went back in time")
}

// fenceRow is what a fence row may say.
type fenceRow struct {
	cell         string
	least, most  int64
	state, group string // "": any
}

// expected follows from the record: while a fence or a restore is under way the row
// is before or after it.
func expected(s Subject) fenceRow {
	want := fenceRow{cell: string(s.Spec.ID), least: 1, most: 1, state: "ACTIVE", group: s.Spec.InstanceGroup}
	if s.Cell == nil || s.Cell.State == core.CellProvisioned {
		return want
	}
	want.least, want.most, want.group = s.Cell.FenceVersion, s.Cell.FenceVersion, s.Cell.InstanceGroup
	switch s.Cell.State {
	case core.CellFencing, core.CellRestoring, core.CellRegressed:
		want.least, want.state, want.group = max(1, s.Cell.FenceVersion-1), "", ""
	case core.CellFenced, core.CellRetired:
		want.state, want.group = "FENCED", ""
	default: // the others hold the right to write: the row is theirs and ACTIVE
	}
	return want
}

// String says it for people.
func (f fenceRow) String() string {
	text := fmt.Sprintf("cell %s, fence version %d", f.cell, f.most)
	if f.least != f.most {
		text = fmt.Sprintf("cell %s, fence version %d or %d", f.cell, f.least, f.most)
	}
	if f.state != "" {
		text += ", " + f.state
	}
	if f.group != "" {
		text += ", group " + f.group
	}
	return text
}

// code is the SQLSTATE of an error, or empty.
func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
