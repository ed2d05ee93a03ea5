package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// flagSet declares a flag for every key. All are text: decoding, and the rule
// that a bad value broke, is the same wherever a value comes from.
func flagSet(program string, fields []field) *pflag.FlagSet {
	set := pflag.NewFlagSet(program, pflag.ContinueOnError)
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(flagName(name))
	})
	set.SortFlags = true
	set.Usage = func() {}
	set.String("config", "", "YAML file to read")
	set.Bool("print-config", false, "print the resulting configuration, secrets masked, and exit")
	for _, f := range fields {
		fallback := ""
		if f.fallback != nil {
			fallback = *f.fallback
		}
		set.String(f.flag(), fallback, strings.TrimSpace(f.doc+" "+f.rule()))
		if f.typ.Kind() == reflect.Bool {
			set.Lookup(f.flag()).NoOptDefVal = "true"
		}
	}
	return set
}

// parseFlags goes on after an unknown flag, so that each one is reported.
func parseFlags(set *pflag.FlagSet, args []string, r *report) error {
	for {
		err := set.Parse(args)
		var unknown *pflag.NotExistError
		switch {
		case err == nil:
			for _, arg := range set.Args() {
				r.add(arg, "is not a flag; this program takes no arguments", "command line")
			}
			return nil
		case errors.As(err, &unknown):
			name := unknown.GetSpecifiedName()
			r.add("--"+name, "is not a flag of this program", "command line")
			args = without(args, name)
		case errors.Is(err, pflag.ErrHelp):
			return err
		default:
			r.add("command line", err.Error(), "")
			return nil
		}
	}
}

// without drops the first argument that spells the unknown flag, and what may
// be its value.
func without(args []string, name string) []string {
	for i, arg := range args {
		bare, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || (flagName(bare) != flagName(name) && !isShorthand(arg, name)) {
			continue
		}
		end := i + 1
		if !hasValue && end < len(args) && !strings.HasPrefix(args[end], "-") {
			end++
		}
		return slices.Concat(args[:i], args[end:])
	}
	return nil
}

// isShorthand: one dash is a group of single letters to pflag.
func isShorthand(arg, name string) bool {
	return !strings.HasPrefix(arg, "--") && strings.Contains(arg, name)
}

func usage(opts Options, set *pflag.FlagSet) error {
	_, err := fmt.Fprintf(opts.stdout(), `Usage: %s [flags]

Every flag is also a key of the file given by --config and an environment
variable: --redis-addrs is redis.addrs and %sREDIS_ADDRS.

%s`, opts.Program, EnvPrefix, set.FlagUsages())
	if err != nil {
		return err
	}
	return ErrHandled
}
