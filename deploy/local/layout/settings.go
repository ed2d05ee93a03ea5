package layout

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// settings are the --set values by component. A component is a kind (every
// process of it) or the name of one instance: cell and cell-2, edge and edge-1,
// etcd and etcd-2, redis and cell-2/redis.
type settings map[string][]setting

type setting struct{ key, value string }

// parseSettings reads component.key=value. The component ends at the first dot.
func parseSettings(set []string, o Options) (settings, error) {
	known, etcds := components(o), append([]string{etcdStep}, o.etcdNames()...)
	parsed := settings{}
	var errs []error
	for _, s := range set {
		left, value, hasValue := strings.Cut(s, "=")
		component, key, hasKey := strings.Cut(left, ".")
		if !hasValue || !hasKey || component == "" || key == "" {
			errs = append(errs, fmt.Errorf("%w: --set %q is not of the form component.key=value", ErrOption, s))
			continue
		}
		if !slices.Contains(known, component) {
			errs = append(errs, fmt.Errorf("%w: --set %q: no component %q; there are %s", ErrOption, s, component, strings.Join(known, ", ")))
			continue
		}
		if slices.Contains(etcds, component) && !slices.Contains(etcdKeys, key) {
			errs = append(errs, fmt.Errorf("%w: --set %q: etcd has the keys %s", ErrOption, s, strings.Join(etcdKeys, ", ")))
			continue
		}
		parsed[component] = append(parsed[component], setting{key, value})
	}
	return parsed, errors.Join(errs...)
}

// etcdKeys are the flags of `cellquota-dev etcd` that may be set.
var etcdKeys = []string{"auto-compaction", "quota-backend-bytes", "log-level"}

// components lists what may be set on a platform of these options.
func components(o Options) []string {
	list := []string{"etcd", "kafka", "redis", "postgres", "controlplane", "edge", "cell"}
	if o.Etcd != EtcdSingle {
		list = append(list, o.etcdNames()...)
	}
	for i := range o.ControlPlanes {
		list = append(list, numbered("controlplane", i))
	}
	for i := range o.Edges {
		list = append(list, numbered("edge", i))
	}
	for i := range o.Cells {
		cell := numbered("cell", i)
		list = append(list, cell, cell+"/redis", cell+"/postgres")
	}
	return list
}

// of gathers the settings of several components; later ones win.
func (s settings) of(components ...string) []setting {
	var all []setting
	for _, c := range components {
		all = append(all, s[c]...)
	}
	return all
}

// document is a configuration file: nested keys.
type document map[string]any

// put sets a dotted key.
func (d document) put(key string, value any) {
	head, rest, nested := strings.Cut(key, ".")
	if !nested {
		d[head] = value
		return
	}
	inner, ok := d[head].(document)
	if !ok {
		inner = document{}
		d[head] = inner
	}
	inner.put(rest, value)
}

// apply puts settings into d, each value read as YAML: 5, true, 2s, [a, b].
func (d document) apply(set []setting) error {
	for _, s := range set {
		var value any
		if err := yaml.Unmarshal([]byte(s.value), &value); err != nil {
			return fmt.Errorf("%w: --set …%s=%s: %w", ErrOption, s.key, s.value, err)
		}
		d.put(s.key, value)
	}
	return nil
}

// numbered gives cell-1 for ("cell", 0).
func numbered(kind string, index int) string { return fmt.Sprintf("%s-%d", kind, index+1) }
