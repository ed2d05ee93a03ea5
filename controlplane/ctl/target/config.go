package target

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/cellquota/cellquota/internal/transport"
)

// config is ~/.config/cellquota/config.yaml.
type config struct {
	Current  string           `yaml:"current"`
	Contexts map[string]named `yaml:"contexts"`
}

// defaultTrustDomain is the servers' default of trust_domain.
const defaultTrustDomain = "cellquota"

// named is one named platform.
type named struct {
	EndpointsFile string            `yaml:"endpoints_file"`
	ControlPlanes []string          `yaml:"control_planes"`
	Edges         []string          `yaml:"edges"`
	TokenFile     string            `yaml:"token_file"`
	TokenFiles    map[string]string `yaml:"token_files"`
	TrustDomain   string            `yaml:"trust_domain"`
	TLS           *struct {
		CertFile string `yaml:"cert_file"`
		KeyFile  string `yaml:"key_file"`
		CAFile   string `yaml:"ca_file"`
	} `yaml:"tls"`
}

func readConfig(file string) (config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return config{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	var c config
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&c); err != nil {
		return config{}, fmt.Errorf("%w: %s: %s", ErrConfig, file, yaml.FormatError(err, false, true))
	}
	return c, nil
}

func fromContext(file, name string) (Target, error) {
	c, err := readConfig(file)
	if err != nil {
		return Target{}, err
	}
	x, ok := c.Contexts[name]
	if !ok {
		return Target{}, fmt.Errorf("%w: %s has no context %q; it has %s", ErrConfig, file, name, some(slices.Sorted(maps.Keys(c.Contexts))))
	}
	if x.EndpointsFile != "" {
		return fromEndpoints(x.EndpointsFile)
	}
	if len(x.ControlPlanes) == 0 {
		return Target{}, fmt.Errorf("%w: %s: contexts.%s: needs endpoints_file or control_planes", ErrConfig, file, name)
	}
	t := Target{Name: name, ControlPlanes: x.ControlPlanes, Edges: x.Edges, token: x.token}
	t.trustDomain = cmp.Or(x.TrustDomain, defaultTrustDomain)
	if x.TLS != nil {
		t.tls = &transport.TLSFiles{CertFile: x.TLS.CertFile, KeyFile: x.TLS.KeyFile, CAFile: x.TLS.CAFile}
	}
	return t, nil
}

// token of a role: its own file, else the one for all. A client certificate does without.
func (x named) token(r Role) (string, error) {
	file := x.TokenFiles[string(r)]
	if file == "" {
		file = x.TokenFile
	}
	if file == "" {
		if x.TLS != nil {
			return "", nil
		}
		return "", fmt.Errorf("%w: no token_file for the role %q, and no client certificate", ErrConfig, r)
	}
	text, err := secretFile(file)
	return string(text), err
}

func some(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
