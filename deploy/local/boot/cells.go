package boot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cellquota/cellquota/deploy/local/layout"
	"github.com/cellquota/cellquota/deploy/local/supervise"
)

// exitRefused is cellctl's exit code for ABORTED, ALREADY_EXISTS and
// FAILED_PRECONDITION.
const exitRefused = 4

// migrate brings the shard's schema and roles to what this release needs. Both
// commands find out what is there already.
func (b *boot) migrate(ctx context.Context, c layout.Cell) error {
	super := b.plan.DSNFile(c, layout.RoleSuperuser)
	if err := b.once(ctx, c, b.programs.Cellquotad, nil, "migrate", "up", "--dsn-file", super); err != nil {
		return err
	}
	return b.once(ctx, c, b.programs.Cellquotad, nil, "migrate", "create-roles", "--dsn-file", super,
		"--app-password-file", b.plan.PasswordFile(c, layout.RoleApp),
		"--fencer-password-file", b.plan.PasswordFile(c, layout.RoleFencer),
		"--reader-password-file", b.plan.PasswordFile(c, layout.RoleReader))
}

// provision makes the cell known to the control plane, once in the life of the
// data directory.
func (b *boot) provision(ctx context.Context, c layout.Cell) error {
	text, err := os.ReadFile(b.plan.CellFile(c))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	now := hex.EncodeToString(sum[:])
	mark := filepath.Join(b.plan.Options.DataDir, "data", c.ID, "provisioned")
	before, err := os.ReadFile(mark)
	switch {
	case err == nil && string(before) == now:
		return nil
	case err == nil:
		return fmt.Errorf("%w: %s was provisioned in this data directory as another cell (its region, for one); take a new --data-dir", layout.ErrOption, c.ID)
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	args := []string{"cell", "provision", "-f", b.plan.CellFile(c)}
	if b.tls != nil { // the file names certificates that stores are shown
		args = append(args, "--role", "sre")
	}
	err = b.cellctl(ctx, c, args...)
	if refused(err) {
		// A start that was cut off between the two may have done it.
		if known := b.cellctl(ctx, c, "cell", "get", c.ID); known == nil {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return writeMark(mark, now)
}

func refused(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == exitRefused
}

func (b *boot) cellctl(ctx context.Context, c layout.Cell, args ...string) error {
	env := []string{"CELLQUOTA_ENDPOINTS=" + b.plan.ProvisionEndpoints()}
	return b.once(ctx, c, b.programs.Cellctl, env, args...)
}

// once runs one of our own programs to its end; its output is in the cell's
// provision log.
func (b *boot) once(ctx context.Context, c layout.Cell, program string, env []string, args ...string) error {
	name := filepath.Base(program)
	return supervise.RunOnce(ctx, supervise.Spec{
		Name: name, Path: program, Args: append([]string{name}, args...),
		Env: append(b.env, env...), Log: b.plan.Log(c.ID + "/provision"),
	})
}
