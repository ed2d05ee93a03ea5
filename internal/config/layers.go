package config

import (
	"fmt"
	"slices"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// layer is one source of values, and how to name where a value of it stands.
type layer struct {
	values *koanf.Koanf
	source func(key string) string
}

func newLayer(p koanf.Provider, source func(string) string) (layer, error) {
	k := koanf.New(".")
	if err := k.Load(p, nil); err != nil {
		return layer{}, fmt.Errorf("configuration: %w", err)
	}
	return layer{k, source}, nil
}

// defaults is the lowest layer.
func defaults(fields []field) (layer, error) {
	values := map[string]any{}
	for _, f := range fields {
		if f.fallback != nil {
			values[f.key] = *f.fallback
		}
	}
	return newLayer(confmap.Provider(values, "."), func(string) string { return "default" })
}

// fromFile is the layer of --config; empty for no path.
func fromFile(path string, fields []field, r *report) (layer, error) {
	content := fileLayer{values: map[string]any{}}
	if path != "" {
		content = readFile(path, byKey(fields), r)
	}
	return newLayer(confmap.Provider(content.values, "."), func(key string) string {
		return fmt.Sprintf("file %s:%d", path, content.lines[key])
	})
}

func byKey(fields []field) map[string]field {
	out := make(map[string]field, len(fields))
	for _, f := range fields {
		out[f.key] = f
	}
	return out
}

// fromEnv is the layer of CELLQUOTA_… variables. Those nobody knows are reported.
func fromEnv(fields []field, o Options, r *report) (layer, error) {
	names := map[string]string{EnvPrefix + "CONFIG": ""}
	for _, key := range o.Known {
		names[field{key: key}.env()] = ""
	}
	for _, name := range o.KnownEnv {
		names[name] = ""
	}
	for _, f := range fields {
		names[f.env()] = f.key
	}
	p := env.Provider(".", env.Opt{
		Prefix:      EnvPrefix,
		EnvironFunc: o.environ,
		TransformFunc: func(name, value string) (string, any) {
			key, known := names[name]
			if !known {
				r.add(name, "is not a setting of any of our programs", "environment")
			}
			return key, value
		},
	})
	return newLayer(p, func(key string) string { return "environment " + field{key: key}.env() })
}

// fromFlags is the highest layer: the flags that were given.
func fromFlags(set *pflag.FlagSet, fields []field) (layer, error) {
	values := map[string]any{}
	for _, f := range fields {
		if fl := set.Lookup(f.flag()); fl != nil && fl.Changed {
			values[f.key] = fl.Value.String()
		}
	}
	return newLayer(confmap.Provider(values, "."), func(key string) string { return "flag --" + flagName(key) })
}

// lookup returns the value of the highest layer that has the key.
func lookup(layers []layer, key string) (value any, source string, found bool) {
	for _, l := range slices.Backward(layers) {
		if l.values.Exists(key) {
			return l.values.Get(key), l.source(key), true
		}
	}
	return nil, "", false
}
