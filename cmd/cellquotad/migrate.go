package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	shardschema "github.com/cellquota/cellquota/cell/shard/migrate"
)

const migrateUsage = `Usage: cellquotad migrate up|check|create-roles --dsn-file FILE

  up            brings the schema to this program's step; never goes down
  check         says what up would do; fails when this program's servers would refuse the schema
  create-roles  makes cellquota_app, cellquota_fencer and cellquota_reader, sets the passwords that are
                given (--app-password-file, --fencer-password-file, --reader-password-file) and grants
                privileges

FILE holds the address of the schema's owner, such as postgres://…`

// migrate is the schema of a shard.
func migrate(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		if len(args) > 0 && (args[0] == "--help" || args[0] == "-h") {
			fmt.Println(migrateUsage)
			return nil
		}
		return fmt.Errorf("%w: migrate needs up, check or create-roles\n\n%s", errUsage, migrateUsage)
	}
	verb := args[0]
	flags := flag.NewFlagSet("cellquotad migrate "+verb, flag.ContinueOnError)
	flags.SetOutput(os.Stderr)
	flags.Usage = func() { fmt.Fprintln(os.Stderr, migrateUsage) }
	dsnFile := flags.String("dsn-file", "", "file with the address of the schema's owner")
	files := map[string]*string{}
	if verb == "create-roles" {
		for _, role := range []string{"app", "fencer", "reader"} {
			files[role] = flags.String(role+"-password-file", "", "file with the password of cellquota_"+role)
		}
	}
	if err := flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 || *dsnFile == "" {
		return fmt.Errorf("%w: migrate %s takes --dsn-file and no further arguments\n\n%s", errUsage, verb, migrateUsage)
	}
	dsn, err := secret(*dsnFile)
	if err != nil {
		return fmt.Errorf("dsn-file: %w", err)
	}
	switch verb {
	case "up":
		return shardschema.Up(ctx, dsn)
	case "check":
		return check(ctx, dsn)
	case "create-roles":
		return createRoles(ctx, dsn, files)
	default:
		return fmt.Errorf("%w: no migrate %q\n\n%s", errUsage, verb, migrateUsage)
	}
}

func check(ctx context.Context, dsn string) error {
	report, err := shardschema.Check(ctx, dsn)
	if err == nil || errors.Is(err, shardschema.ErrOutOfReach) {
		fmt.Printf("schema step %d, program step %d, pending %d\n", report.Schema, report.Program, len(report.Pending))
	}
	return err
}

func createRoles(ctx context.Context, dsn string, files map[string]*string) error {
	var p shardschema.Passwords
	for role, to := range map[string]*string{"app": &p.App, "fencer": &p.Fencer, "reader": &p.Reader} {
		if *files[role] == "" {
			continue
		}
		text, err := secret(*files[role])
		if err != nil {
			return fmt.Errorf("%s-password-file: %w", role, err)
		}
		*to = text
	}
	return shardschema.CreateRoles(ctx, dsn, p)
}

// secret reads a file whose trailing line break is not part of the secret.
func secret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
