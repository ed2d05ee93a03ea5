package config

import (
	"errors"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
)

// Options say what surrounds one Load.
type Options struct {
	// Program is the name shown by --help ("cellquotad cell").
	Program string
	// Known are the keys of our other programs (Keys of their Configs), whose
	// environment variables are ignored here.
	Known []string
	// KnownEnv are further names of environment variables that are not keys of
	// any Config ("CELLQUOTA_ENDPOINTS").
	KnownEnv []string
	// Environ is the environment as "NAME=value"; nil means the process's own.
	Environ []string
	// Stdout is where --help and --print-config write; nil means os.Stdout.
	Stdout io.Writer
}

func (o Options) environ() []string {
	if o.Environ == nil {
		return os.Environ()
	}
	return o.Environ
}

func (o Options) stdout() io.Writer {
	if o.Stdout == nil {
		return os.Stdout
	}
	return o.Stdout
}

// Checker is a Config, or a struct inside one, with rules that bind several
// fields. Check reports each broken rule under the key it belongs to; it is
// called after all keys were read, and must bear fields that were refused and
// hold their zero value.
type Checker interface {
	Check(problem func(key, rule string))
}

// Load reads T. It returns ErrHandled when --help or --print-config was asked
// for, and Problems, all of them, when the configuration cannot be used.
//
// Precedence: flag, environment, file (--config, or CELLQUOTA_CONFIG), default.
func Load[T any](args []string, opts Options) (T, error) {
	var out T
	fields := schema(reflect.TypeFor[T]())
	set := flagSet(opts.Program, fields)
	var r report
	if err := parseFlags(set, args, &r); errors.Is(err, pflag.ErrHelp) {
		return out, usage(opts, set)
	}
	layers, err := readLayers(set, fields, opts, &r)
	if err != nil {
		return out, err
	}
	fill(reflect.ValueOf(&out).Elem(), fields, layers, &r)
	runChecks(reflect.ValueOf(&out).Elem(), layers, &r)
	if err := r.err(); err != nil {
		return out, err
	}
	if asked, _ := set.GetBool("print-config"); asked {
		if err := write(opts.stdout(), reflect.ValueOf(&out).Elem(), fields); err != nil {
			return out, err
		}
		return out, ErrHandled
	}
	return out, nil
}

// readLayers returns the sources from the lowest precedence to the highest.
func readLayers(set *pflag.FlagSet, fields []field, opts Options, r *report) ([]layer, error) {
	path, err := set.GetString("config")
	if err != nil {
		return nil, err
	}
	if path == "" {
		path = envValue(opts.environ(), EnvPrefix+"CONFIG")
	}
	low, err1 := defaults(fields)
	file, err2 := fromFile(path, fields, r)
	environment, err3 := fromEnv(fields, opts, r)
	flags, err4 := fromFlags(set, fields)
	return []layer{low, file, environment, flags}, errors.Join(err1, err2, err3, err4)
}

func envValue(environ []string, name string) string {
	for _, pair := range environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// fill decodes each key into its field.
func fill(dst reflect.Value, fields []field, layers []layer, r *report) {
	for _, f := range fields {
		raw, source, found := lookup(layers, f.key)
		into := dst.FieldByIndex(f.index)
		if found {
			if rule := f.decode(into, raw); rule != "" {
				r.add(f.key, rule, source)
				into.SetZero()
				continue
			}
		}
		if f.required && empty(into) {
			r.add(f.key, "is required", "")
		}
	}
	refuseDevOnly(dst, fields, layers, r)
}

func empty(v reflect.Value) bool {
	if v.Kind() == reflect.Slice {
		return v.Len() == 0
	}
	return v.IsZero()
}

// refuseDevOnly reports keys that need `dev: true` and differ from their default.
func refuseDevOnly(dst reflect.Value, fields []field, layers []layer, r *report) {
	for _, f := range fields {
		if f.key == "dev" && dst.FieldByIndex(f.index).Bool() {
			return
		}
	}
	for _, f := range fields {
		if !f.devOnly || r.has(f.key) {
			continue
		}
		normal := reflect.New(f.typ).Elem()
		if f.fallback != nil {
			_ = f.decode(normal, *f.fallback)
		}
		if !reflect.DeepEqual(normal.Interface(), dst.FieldByIndex(f.index).Interface()) {
			_, source, _ := lookup(layers, f.key)
			r.add(f.key, "is refused unless dev: true", source)
		}
	}
}

// runChecks calls every Checker in the struct, inner ones first. A problem with a
// key that was refused already is not told: the value is not what was given.
func runChecks(v reflect.Value, layers []layer, r *report) {
	refused := map[string]bool{}
	for _, p := range r.all {
		refused[p.Key] = true
	}
	problem := func(key, rule string) {
		if !refused[key] {
			_, source, _ := lookup(layers, key)
			r.add(key, rule, source)
		}
	}
	visitCheckers(v, func(c Checker) { c.Check(problem) })
}

func visitCheckers(v reflect.Value, visit func(Checker)) {
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() {
			visitCheckers(v.Field(i), visit)
		}
	}
	if c, ok := v.Addr().Interface().(Checker); ok {
		visit(c)
	}
}
